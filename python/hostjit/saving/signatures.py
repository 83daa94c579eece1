# SPDX-License-Identifier: Apache-2.0
"""The calls that a specialization answers, in words."""

from __future__ import annotations

from typing import Any

from hostjit.saving.arguments import arguments_to_json, arguments_to_text
from hostjit.saving.bindings import Parts
from hostjit.saving.modes import modes_to_json, modes_to_text
from hostjit.saving.values import Values

__all__ = ["conditions", "signature", "signature_of"]

_MOST_CONDITIONS = 2


def signature(described: dict[str, Any]) -> str:
    """Return the calls that a specialization answers, in words."""
    text = arguments_to_text(described["arguments"])
    return f"{text}, {modes_to_text(described['modes'])}"


def conditions(described: dict[str, Any], parts: Parts) -> str:
    """Return in words what else is checked of these calls; "" for nothing."""
    found = [
        f"'{parts.name_of(number)}' has {'a' if has else 'no'} gradient"
        for number, has in described["gradients"]
    ]
    checks = described["checks"]
    if checks is not None:
        found += [
            f"tensor {leaf} of the arguments has {'a' if has else 'no'} gradient"
            for leaf, has in checks["leaf_gradients"]
        ]
        if checks["reads"] is not None:
            read = zip(checks["reads"]["where"], checks["reads"]["expected"], strict=True)
            for where, number in read:
                value = str(parts.tensors[number].tolist())
                found.append(f"a value read at {where} is {value[:40]}{'...' * (len(value) > 40)}")
    found += [
        f"tensor {leaf} of the arguments is where the first call had it"
        for leaf in described["static"]
    ]
    found += [
        f"tensor {place} of the arguments begins at an address that 16 divides"
        for place in described["aligned"]
        if isinstance(place, int)
    ]
    rest = len(found) - _MOST_CONDITIONS
    text = " and ".join(found[:_MOST_CONDITIONS]) + (f" and {rest} more" if rest > 0 else "")
    return f", where {text}" if text else ""


def signature_of(facts: dict[str, Any]) -> str:
    """Return the same of `_C.Specialization.describe`; raises hostjit.Error where it can't be."""
    arguments = arguments_to_json(facts["arguments"], Values())
    return signature({"arguments": arguments, "modes": modes_to_json(facts["modes"])})
