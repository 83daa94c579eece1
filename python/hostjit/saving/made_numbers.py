# SPDX-License-Identifier: Apache-2.0
"""Numbers that calls return, as JSON: how they are made of open numbers and sizes of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hostjit import _C
from hostjit.capturing.numbers.functions import FUNCTIONS
from hostjit.saving.values import Values

__all__ = ["made_from_json", "made_to_json"]


def made_to_json(described: tuple[Any, ...], values: Values) -> list[Any]:
    """Write the tuple that `_C.Specialization` takes as `results`."""
    sources, steps = described
    names = {id(function): function.__name__ for function in FUNCTIONS} if steps else {}
    return [
        [[kind, values.to_json(value) if kind == "object" else value] for kind, value in sources],
        [[_name_of(function, names), list(operands)] for function, operands in steps],
    ]


def made_from_json(described: list[Any], values: Values) -> tuple[Any, ...]:
    """Return the tuple that `_C.Specialization` takes as `results`."""
    sources, steps = described
    read = [
        (kind, values.from_json(value) if kind == "object" else value) for kind, value in sources
    ]
    if not read:
        return ()
    functions = {function.__name__: function for function in FUNCTIONS} if steps else {}
    return read, [(functions[name], operands) for name, operands in steps]


def _name_of(function: Callable[..., Any], names: dict[int, str]) -> str:
    if id(function) not in names:
        raise _C.Error(f"a number that it returns is made by {function!r}")
    return names[id(function)]
