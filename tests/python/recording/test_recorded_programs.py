# SPDX-License-Identifier: Apache-2.0
"""Recorded programs of random statements do what they do eagerly, and every input is checked."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from random_programs import arguments, make_program
from recorded_beside_eager import check
from torch.testing import assert_close

import hostjit

_SEEDS = range(50)


@pytest.mark.parametrize("seed", _SEEDS)
@torch.no_grad()
def test_replay_equals_eager(seed: int) -> None:
    check(make_program(seed), [arguments(seed, call) for call in range(5)])


@pytest.mark.parametrize("seed", _SEEDS)
@torch.no_grad()
def test_memory_is_that_of_the_lower_bound(seed: int) -> None:
    fast = hostjit.capture(make_program(seed, rows=64), warmup=0, fallback=False)
    fast(*arguments(seed, 0, rows=64))  # tensors of whole lines of the cache
    found = re.search(r"arena (\d+) bytes, lower bound (\d+) bytes", fast.memory_plan())
    assert found is not None and int(found[1]) <= 1.1 * int(found[2])


def _changed(seed: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Calls that each differ from the recorded one in one thing, and what is said of it."""
    found = []
    for what in ("k", "kind", "dtype", "strides", "keys", "items", "twice", "gradient"):
        pair, state, k = arguments(seed, 99)
        inputs = pair["inputs"]
        if what == "k":
            k = 0.25
        elif what == "kind":
            k = 1
        elif what == "dtype":
            inputs[0] = inputs[0].double()
        elif what == "strides":
            inputs[1] = inputs[1].t().contiguous().t()
        elif what == "keys":
            pair = {"inputs": inputs, "more": 1}
        elif what == "items":
            inputs.append(inputs[0] + 1)
        elif what == "twice":
            inputs[1] = inputs[0]
        elif what == "gradient":
            inputs[0] = inputs[0].requires_grad_()
        found.append((what, (pair, state, k)))
    return found


_SAID = {
    "k": "argument 'k': expected 0.5, found 0.25",
    "kind": "argument 'k': expected 0.5, found 1",
    "dtype": "argument 'pair'['inputs'][0]: dtype expected torch.float32, found torch.float64",
    "strides": "argument 'pair'['inputs'][1]: strides expected [6, 1], found [1, 4]",
    "keys": "argument 'pair': keys expected ['inputs'], found ['inputs', 'more']",
    "items": "argument 'pair'['inputs']: expected 2 items, found 3",
    "twice": "which arguments are one tensor: expected none, found ((0, 1),)",
    "gradient": "argument 'pair'['inputs'][0]: requires_grad expected False, found True",
}


@pytest.mark.parametrize("seed", _SEEDS)
@torch.no_grad()
def test_every_input_is_checked(seed: int) -> None:
    program = make_program(seed)
    checked = hostjit.capture(program, on_mismatch="raise", warmup=0)
    checked(*arguments(seed, 0))
    for what, call in _changed(seed):
        with pytest.raises(hostjit.MismatchError) as error:
            checked(*call)
        assert _SAID[what] in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("seed", range(0, 50, 5))
@torch.no_grad()
def test_what_differs_is_recorded_anew(seed: int) -> None:
    program = make_program(seed)
    fast = hostjit.capture(program, warmup=0)
    fast(*arguments(seed, 0))
    # With other dtypes and strides some programs raise.
    calls = [call for what, call in _changed(seed) if what not in ("dtype", "strides", "gradient")]
    for number, call in enumerate(calls):
        for _ in range(2):
            given, expected_call = copy.deepcopy(call), copy.deepcopy(call)
            torch.manual_seed(number)
            expected = program(*expected_call)
            torch.manual_seed(number)
            assert_close(fast(*given), expected)
            assert_close(given, expected_call)
    assert len(fast.specializations) == 6


@pytest.mark.parametrize(
    ("function", "recordings"),
    [
        (torch.linalg.pinv, 1),
        (lambda x: torch.linalg.lstsq(x, x + 1).solution, None),
        (lambda x: (x.mH @ x, (x.mH * 2).sum(0), x.conj().imag.abs()), 1),
    ],
)
def test_lazily_conjugated_tensors(function: Any, recordings: int | None) -> None:
    # In a dispatch mode, PyTorch's kernels take the conjugates that they make for what they are of.
    calls = [(torch.randn(5, 3, dtype=torch.complex64),) for _ in range(4)]
    check(function, calls, recordings=recordings)
