# SPDX-License-Identifier: Apache-2.0
"""Which cases of parametrised tests run.

Tests of what is captured give the two runtimes the same Host IR: each function runs its first case
in both, every other one in one of them, by its name. `HOSTJIT_TEST_RUNTIMES=both` runs all in both.

With `HOSTJIT_TEST_SAMPLE=12`, each function of this folder runs one of its cases and about a
twelfth of the others. `HOSTJIT_TEST_SEED`, any text, says which.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

__all__ = ["cases_left_out"]

_RUNTIMES = ("jit", "evaluator")
_OF_CAPTURING = {Path(__file__).parent / name for name in ("capture", "dynamic", "training")}
_OF_CAPTURING |= {Path(__file__).parent / name for name in ("backend", "recording")}


def cases_left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that this run leaves out."""
    left_out = []
    if os.environ.get("HOSTJIT_TEST_RUNTIMES") != "both":
        firsts: dict[str, str] = {}  # the first case of each function
        left_out = [item for item in items if _runs_in_the_other_runtime(item, firsts)]
    share = int(os.environ.get("HOSTJIT_TEST_SAMPLE", "1"))
    if share > 1:
        gone = set(left_out)
        here = Path(__file__).parent
        of_this_folder = [x for x in items if here in x.path.parents and x not in gone]
        left_out += _outside_of_sample(of_this_folder, share)
    return left_out


def _runs_in_the_other_runtime(item: pytest.Item, firsts: dict[str, str]) -> bool:
    parameters = getattr(item, "callspec", None)
    if parameters is None or not _OF_CAPTURING.intersection(item.path.parents):
        return False
    runtime = parameters.params.get("runtime", parameters.params.get("each_runtime"))
    if runtime not in _RUNTIMES:
        return False
    case = "-".join(part for part in parameters.id.split("-") if part not in _RUNTIMES)
    if firsts.setdefault(_function_of(item), case) == case:
        return False
    return runtime != _RUNTIMES[_number_of(f"{_function_of(item)} {case}") % 2]


def _outside_of_sample(items: Iterable[pytest.Item], share: int) -> list[pytest.Item]:
    seed = os.environ.get("HOSTJIT_TEST_SEED", "")
    numbers = {item: _number_of(f"{seed} {item.nodeid}") for item in items}
    least: dict[str, pytest.Item] = {}  # by function, the case that runs in any case
    for item, number in numbers.items():
        if number < numbers[least.setdefault(_function_of(item), item)]:
            least[_function_of(item)] = item
    kept = set(least.values())
    return [item for item, number in numbers.items() if number % share and item not in kept]


def _function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _number_of(text: str) -> int:
    return zlib.crc32(text.encode())
