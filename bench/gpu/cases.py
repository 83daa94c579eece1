# SPDX-License-Identifier: Apache-2.0
"""All cases by name, and how one is measured in this process."""

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType

from calls import CALLS
from launches import CHAIN
from side_by_side import Row, compare
from steps import STEPS
from timing import Device

# The sections of a run that are tables of times, with the module that prepares their cases.
SECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "launches": ("launches", (CHAIN,)),
    "calls": ("calls", CALLS),
    "training": ("steps", STEPS),
}


def module_of(case: str) -> ModuleType:
    name = next(module for module, cases in SECTIONS.values() if case in cases)
    return importlib.import_module(name)


def measure(
    case: str,
    device: Device,
    subjects: Sequence[str],
    without: Sequence[str],
    rounds: int,
    begin: Callable[[str], None],
) -> list[Row]:
    """Time the subjects of a case, save those in `without`, in turns."""
    preparations = module_of(case).preparations(case, device, subjects)
    kept = {name: prepare for name, prepare in preparations.items() if name not in without}
    return compare(case, device, kept, rounds, begin)
