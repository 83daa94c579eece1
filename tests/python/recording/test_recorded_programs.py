# SPDX-License-Identifier: Apache-2.0
"""Recorded programs of random statements do what they do eagerly, and every input is checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from random_programs import arguments, make_program, sizes_of, written_by
from recorded_beside_eager import assert_same, check
from torch.utils import _pytree as pytree

import hostjit

_SEEDS = range(50)
_RUNTIMES = ("jit", "evaluator")


@pytest.mark.parametrize("seed", _SEEDS)
@torch.no_grad()
def test_memory_is_that_of_the_lower_bound(seed: int) -> None:
    fast = hostjit.capture(make_program(seed), warmup=0, fallback=False)
    fast(*arguments(seed, 0, rows=64, columns=8))  # tensors of whole lines of the cache
    found = re.search(r"arena (\d+) bytes, lower bound (\d+) bytes", fast.memory_plan())
    assert found is not None and int(found[1]) <= 1.1 * int(found[2])


def _overlapping(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors of these sizes in one memory, a row apart."""
    both = torch.cat([a, b])
    return both[: len(a)], both[1 : len(a) + 1]


def _call(seed: int, number: int, *differs: str) -> tuple[Any, ...]:
    """Fresh data that differs in some ways from what a program was recorded with."""
    rows, columns = sizes_of(seed)
    if "sizes" in differs:
        rows, columns = rows + 1, columns + 2
    dtype = torch.float64 if "dtype" in differs else torch.float32
    pair, state, k = arguments(seed, number, rows, columns, dtype)
    inputs = pair["inputs"]
    for what in differs:
        if what == "k":
            k = 0.25
        elif what == "kind":
            k = 1
        elif what == "dtype of one":
            inputs[0] = inputs[0].double()
        elif what == "strides":
            inputs[1] = inputs[1].t().contiguous().t()
        elif what == "steps":
            state = torch.stack([state, state], 2)[:, :, 1]
        elif what == "offset":
            inputs[0] = torch.cat([inputs[1], inputs[0]])[rows:]
        elif what == "keys":
            pair = {"inputs": inputs, "more": 1}
        elif what == "items":
            inputs.append(inputs[0] + 1)
        elif what == "nesting":
            pair = {"inputs": tuple(inputs)}
        elif what == "twice":
            inputs[1] = inputs[0]
        elif what == "state twice":
            state = inputs[0]
        elif what == "overlap":
            inputs[0], inputs[1] = _overlapping(inputs[0], inputs[1])
        elif what == "state overlaps":
            state, inputs[0] = _overlapping(state, inputs[0])
        elif what == "gradient":
            inputs[0].requires_grad_()
    return pair, state, k


def _compare(fast: Any, seed: int, number: int, *differs: str) -> None:
    """Compare a call with eager's in either runtime: results, arguments, gradients, generators."""
    torch.manual_seed(number)
    arguments = _call(seed, number, *differs)
    expected = _outcome(make_program(seed), arguments)
    after = torch.get_rng_state()
    for runtime in _RUNTIMES:
        torch.manual_seed(number)
        given = _call(seed, number, *differs)
        with hostjit.runtime(runtime):
            found = _outcome(fast, given)
        assert_same(found, expected)
        assert_same(given, arguments)
        if not isinstance(expected, str):
            assert torch.equal(torch.get_rng_state(), after)


def _outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The results, and gradients where there are some; the name of the exception that it raises."""
    leaf = args[0]["inputs"][0]
    try:
        results = function(*args)
        flat = [x for x in pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]
        wanted = [x.square().sum() for x in flat if x.grad_fn is not None]
        return results, torch.autograd.grad(wanted, leaf, allow_unused=True) if wanted else None
    except RuntimeError as error:
        if isinstance(error, hostjit.Error):
            raise
        return type(error).__name__


@pytest.mark.parametrize("seed", _SEEDS)
@torch.no_grad()
def test_replay_equals_eager(seed: int) -> None:
    fast = hostjit.capture(make_program(seed))
    for number in range(5):
        _compare(fast, seed, number, *(["offset"] if number > 2 else []))
    assert len(fast.specializations) == 1 and fast.captured is not None


# Ways in which calls differ from the recording, together where one does not hide the other.
_DIFFERENT = (
    ("sizes", "k", "keys"),
    ("dtype", "strides", "items"),
    ("dtype of one", "kind"),
    ("twice", "steps"),
    ("overlap", "nesting"),
    ("state twice",),
    ("state overlaps",),
)


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.filterwarnings("ignore:hostjit")
def test_what_differs_is_recorded_anew(seed: int) -> None:
    fast = hostjit.capture(make_program(seed), warmup=0)
    with torch.no_grad():
        _compare(fast, seed, 0)
        for differs in _DIFFERENT:
            for number in (1, 2):
                _compare(fast, seed, number, *differs)
        _compare(fast, seed, 3)
    with_gradients = hostjit.capture(make_program(seed), warmup=0)
    for number in (4, 5):
        _compare(with_gradients, seed, number, "gradient")


_SAID = {
    "k": "argument 'k': expected 0.5, found 0.25",
    "kind": "argument 'k': expected 0.5, found 1",
    "sizes": "argument 'pair'['inputs'][0]: sizes expected [{rows}, {columns}], found [",
    "dtype": "argument 'pair'['inputs'][0]: dtype expected torch.float32, found torch.float64",
    "dtype of one": "argument 'pair'['inputs'][0]: dtype expected torch.float32, found torch.",
    "strides": "argument 'pair'['inputs'][1]: strides expected [{columns}, 1], found [1, {rows}]",
    "steps": "argument 'state': strides expected [{columns}, 1], found [{twice}, 2]",
    "keys": "argument 'pair': keys expected ['inputs'], found ['inputs', 'more']",
    "items": "argument 'pair'['inputs']: expected 2 items, found 3",
    "nesting": "argument 'pair'['inputs']: expected a list, found a tuple",
    "twice": "which arguments are one tensor: expected none, found ((0, 1),)",
    "state twice": "which arguments are one tensor: expected none, found ((0, 2),)",
    "gradient": "argument 'pair'['inputs'][0]: requires_grad expected False, found True",
}


@pytest.mark.parametrize("seed", _SEEDS)
@torch.no_grad()
def test_every_input_is_checked(seed: int) -> None:
    rows, columns = sizes_of(seed)
    checked = hostjit.capture(make_program(seed), on_mismatch="raise", warmup=0)
    checked(*_call(seed, 0))
    for what, text in _SAID.items():
        for runtime in _RUNTIMES:
            with hostjit.runtime(runtime), pytest.raises(hostjit.MismatchError) as error:
                checked(*_call(seed, 1, what))
            said = text.format(rows=rows, columns=columns, twice=2 * columns)
            assert said in str(error.value)
            assert "\n" not in str(error.value)
    # Memory that is shared matters where it is written, and what shares it is read or written.
    for what in ("overlap", "state overlaps"):
        said = ""
        try:
            _compare(checked, seed, 1, what)
        except hostjit.MismatchError as mismatch:
            said = str(mismatch)
        assert not said or (written_by(seed) and "share memory" in said)
    assert len(checked.specializations) == 1


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


def test_settings_of_a_part() -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        try:
            return x + torch.ones(3)
        finally:
            torch.set_default_dtype(torch.float32)

    check(doubled, [(torch.ones(3),)] * 4, recordings=None)
