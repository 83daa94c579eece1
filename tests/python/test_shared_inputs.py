# SPDX-License-Identifier: Apache-2.0
"""Inputs that lie in one memory, of which the call writes some."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from no_warnings import no_warnings
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit.capturing.overlap import may_overlap

Views = Callable[[Tensor], tuple[Tensor, Tensor]]

APART: dict[str, Views] = {
    "rows": lambda s: (s[0], s[3]),
    "parts of a row": lambda s: (s[1, :3], s[1, 3:]),
    "columns": lambda s: (s[:, 0], s[:, 4]),
    "every other": lambda s: (s[0, ::2], s[0, 1::2]),
    "blocks": lambda s: (s[:2, :3], s[1:3, 3:]),
    "a block and a part of a row": lambda s: (s[:, :2], s[1, 2:]),
}


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("views", APART.values(), ids=APART)
def test_views_apart_are_written_by_one_program(views: Views, runtime: str) -> None:
    def step(x: Tensor, v: Tensor) -> Tensor:
        x.add_(1)
        v *= 2
        return x.sum() + v.sum()

    fast = hostjit.compile(step)
    with warnings.catch_warnings(), hostjit.runtime(runtime):
        warnings.simplefilter("error")
        for _ in range(3):
            state = torch.randn(4, 6)
            expected = state.clone()
            assert_close(fast(*views(state)), step(*views(expected)))
            assert_close(state, expected)
    assert len(fast.specializations) == 1


def test_views_apart_through_torch_compile() -> None:
    def step(x: Tensor, v: Tensor) -> Tensor:
        x.add_(v)
        return v * 2

    fast = torch.compile(step, backend="hostjit")
    with no_warnings():
        for _ in range(3):
            state = torch.randn(4, 6)
            expected = state.clone()
            assert_close(fast(state[:2], state[2:]), step(expected[:2], expected[2:]))
            assert_close(state, expected)


@pytest.mark.parametrize("begins", [(4, 3, 5, 2, 4, 0), (1, 4, 0, 6)], ids=str)
def test_views_that_meet_run_eagerly_and_those_apart_do_not(begins: tuple[int, ...]) -> None:
    def step(x: Tensor, v: Tensor) -> Tensor:
        x.add_(1)
        return v * 2

    fast = hostjit.compile(step)
    for position, begin in enumerate(begins):
        state = torch.arange(12.0)
        expected = state.clone()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = fast(state[:4], state[begin : begin + 4])
        is_first = begin < 4 and all(other >= 4 for other in begins[:position])
        assert [str(w.message).count("share memory that") for w in caught] == [1] * is_first
        assert_close(found, step(expected[:4], expected[begin : begin + 4]))
        assert_close(state, expected)
    assert len(fast.specializations) == 1


def test_many_views_of_one_buffer() -> None:
    def step(parts: list[Tensor], x: Tensor) -> None:
        for part in parts:
            part.add_(x)

    fast = hostjit.compile(step)
    for meet in (False, True, False):
        state = torch.randn(10, 3)
        expected = state.clone()
        last = 8 if meet else 9
        fast([*state[:9]], state[last])
        step([*expected[:9]], expected[last])
        assert_close(state, expected)
    assert len(fast.specializations) == 1


@pytest.mark.parametrize("begin", [0, 2])
def test_memory_around_an_input_that_is_written(begin: int) -> None:
    def read(x: Tensor) -> Tensor:
        around = x.as_strided((6,), (1,))
        x.add_(1)
        return around * 2

    def write(x: Tensor) -> Tensor:
        around = x.as_strided((6,), (1,), 0)
        return around.add_(1)

    for function in (read, write):
        state, expected = torch.arange(8.0), torch.arange(8.0)
        with pytest.warns(UserWarning, match="memory around an input"):
            found = hostjit.compile(function)(state[begin : begin + 2])
        assert_close(found, function(expected[begin : begin + 2]))
        assert_close(state, expected)


def test_as_strided_within_an_input_that_is_written_is_compiled() -> None:
    def function(x: Tensor) -> Tensor:
        diagonal = x.as_strided((4,), (5,))
        x.add_(1)
        return diagonal * 2

    fast = hostjit.compile(function)
    x, expected = torch.zeros(4, 4), torch.zeros(4, 4)
    assert_close(fast(x), function(expected))
    assert_close(x, expected)
    assert len(fast.specializations) == 1


def test_may_overlap_misses_nothing_and_knows_slices() -> None:
    chance = random.Random(0)
    base = torch.arange(480)

    def view() -> Tensor:
        sizes = [chance.randint(0, 4) for _ in range(chance.randint(0, 3))]
        strides = [chance.choice((0, 1, 2, 3, 5, 6, 12, 30)) for _ in sizes]
        return base.as_strided(sizes, strides, chance.randint(0, 60))

    for _ in range(4000):
        a, b = view(), view()
        if set(a.flatten().tolist()) & set(b.flatten().tolist()):
            assert may_overlap(a, b)
            assert may_overlap(b, a)

    table = base[:240].view(4, 5, 12)
    cuts = [slice(0, 2), slice(1, 3), slice(2, 4), slice(0, None, 2), slice(1, None, 2)]
    slices = [table[:, i, j] for i, j in itertools.product(cuts, cuts)]
    for a, b in itertools.product(slices, slices):
        assert may_overlap(a, b) == bool(set(a.flatten().tolist()) & set(b.flatten().tolist()))


def test_may_overlap_of_types_of_other_sizes() -> None:
    base = torch.zeros(16)
    halves = base.view(torch.bfloat16)
    assert may_overlap(base[2:4], halves[7:8])
    assert not may_overlap(base[2:4], halves[8:9])
    assert not may_overlap(base[2:4], base.clone()[2:4])


@pytest.mark.parametrize("begin", [3, 2])
def test_a_recording_writes_state_that_lies_apart(begin: int) -> None:
    def step(state: Tensor, x: Tensor) -> Tensor:
        state[:3].add_(x)
        return state[begin : begin + 3] * 2

    class Controller:
        def __init__(self) -> None:
            self.state = torch.zeros(6)
            self.written, self.read = self.state[:3], self.state[begin : begin + 3]

        def step(self, x: Tensor) -> Tensor:
            self.written.add_(x)
            return self.read * 2

    controller, expected = Controller(), torch.zeros(6)
    fast = hostjit.capture(controller.step)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if begin == 3 else "ignore")
        for number in range(5):
            x = torch.full((3,), float(number))
            assert_close(fast(x), step(expected, x))
            assert_close(controller.state, expected)
    assert (fast.captured is not None) == (begin == 3)
