# SPDX-License-Identifier: Apache-2.0
"""All cases of PyTorch's databases, a sample of them, and the calls of one.

Calls are made lazily, from a fixed seed: a few thousand cases have some hundred thousand calls.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from conformance.case import Call, Case, seed_everything
from conformance.modules import module_calls, module_cases
from conformance.operators import operator_calls, operator_cases
from conformance.optimizers import Steps, optimizer_calls, optimizer_cases

__all__ = ["calls_of", "cases", "sample_cases"]

# Of how many entries the sample has a case, by the kind of the case: one of so many.
_SAMPLE = {
    "hostjit.compile": {
        "operators, forward": 1,
        "operators, errors": 3,
        "operators, backward": 4,
        "modules, forward": 3,
        "modules, backward": 3,
        "optimizers, forward": 3,
    },
    "torch.compile": {
        "operators, forward": 5,
        "operators, errors": 12,
        "operators, backward": 4,
        "modules, forward": 6,
        "modules, backward": 3,
        "optimizers, forward": 1,
    },
}


def cases(device: str = "cpu") -> list[Case]:
    """Return all cases on a device, in the order of the databases."""
    return [*operator_cases(device), *module_cases(), *optimizer_cases()]


def sample_cases(through: str, device: str = "cpu") -> list[Case]:
    """Return a case of some entries, or of all of them, of each kind that the subject can be asked.

    The entry's name says whether it has its turn, and with which dtype.
    """
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases(device):
        groups.setdefault((case.kind, case.entry), []).append(case)
    chosen = []
    for (kind, entry), group in groups.items():
        every = _SAMPLE[through].get(kind)
        number = zlib.crc32(f"{entry} {kind}".encode())
        if every and number % every == 0:
            chosen.append(group[number // every % len(group)])
    return chosen


def calls_of(case: Case, limit: int | None = None, device: str = "cpu") -> Iterator[Call | Steps]:
    """Make the calls of a case on a device, at most `limit`, spread over all that there are."""
    seed_everything()
    match case.kind.split(",")[0]:
        case "operators":
            return operator_calls(case, limit, device)
        case "modules":
            return module_calls(case, limit, device)
    return optimizer_calls(case, limit, device)
