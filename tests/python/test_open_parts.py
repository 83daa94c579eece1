# SPDX-License-Identifier: Apache-2.0
"""Parts of a call that cannot be captured whole serve any numbers and sizes."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from in_parts import counted_captures
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit
from hostjit.capturing.guards.full_check import GuardCheck

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")
NOWHERE = io.StringIO()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def printing(x: Tensor) -> Tensor:
    y = (x + 1).relu()
    print("printing", file=NOWHERE)
    return y * 3 - x


def test_numbers_that_change_at_every_call_are_not_captured_anew() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.exp()
        mean = y.mean().item()
        return (y - mean) * 2

    fast = hostjit.compile(function)
    for _ in range(6):
        fast(torch.randn(3))
    with counted_captures() as count:
        for _ in range(20):
            x = torch.randn(3)
            assert_close(fast(x), function(x))
    assert count[0] == 0


def test_numbers_behind_a_break_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor) -> Tensor:
        y = x.exp()
        mean = y.mean().item()
        return (y - mean) * 2 / (1 + mean * mean)

    def fail(self: object) -> None:
        raise AssertionError("left to Dynamo")

    monkeypatch.setattr("hostjit.parts.parts.Parts.by_frames", fail)
    fast = hostjit.compile(function)
    for gradients in (False, True):
        for _ in range(5):
            x = torch.randn(3, requires_grad=gradients)
            result, expected = fast(x), function(x)
            assert_close(result, expected)
            if gradients:
                found = torch.autograd.grad(result.sum(), x)
                assert_close(found, torch.autograd.grad(expected.sum(), x))


def test_more_signatures_than_the_limit() -> None:
    fast = hostjit.compile(printing, dynamic=False)
    for size in range(2, 14):
        x = torch.randn(size)
        assert_close(fast(x), printing(x))
    with counted_captures() as count:
        x = torch.randn(40)
        assert_close(fast(x), printing(x))
        assert_close(fast(torch.ones(2)), printing(torch.ones(2)))
    assert count[0] == 0


@pytest.mark.parametrize("gradients", [False, True])
def test_parts_are_compiled_for_any_size(gradients: bool) -> None:
    model = nn.Linear(3, 3).requires_grad_(gradients)

    def function(x: Tensor) -> Tensor:
        y = model(x).exp()
        print("any size", file=NOWHERE)
        y = y * y.shape[0] + x
        print("any other", file=NOWHERE)
        return y.sum(0) + x

    fast = hostjit.compile(function)
    for size in (3, 4, 5):
        fast(torch.randn(size, 3))
    with counted_captures() as count:
        for size in range(6, 40):
            x = torch.randn(size, 3)
            found, expected = fast(x), function(x)
            assert_close(found, expected)
            if gradients:
                ours, eager = (
                    torch.autograd.grad(result.sum(), model.parameters())
                    for result in (found, expected)
                )
                assert_close(ours, eager, rtol=1e-4, atol=1e-4)
    assert count[0] == 0


def test_a_first_part_that_computes_nothing_serves_any_size() -> None:
    def in_a_loop(x: Tensor) -> Tensor:
        for _ in range(2):
            x = printing(x)
        return x

    def function(x: Tensor, scale: float) -> Tensor:
        return in_a_loop(x).tanh() * scale

    fast = hostjit.compile(function)
    for size in range(2, 70):  # until none is taken for one that comes again
        x = torch.randn(size, 4)
        assert_close(fast(x, 2.0), function(x, 2.0))
    with counted_captures() as count:
        for size in range(70, 90):
            x = torch.randn(size, 4)
            assert_close(fast(x, 2.0), function(x, 2.0))
    assert count[0] == 0


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("kind", [int, float])
def test_numbers_that_are_only_handed_on(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a part gives to the next, and does not look at, may be any; Python checks nothing."""
    refreshed = 0
    refresh = GuardCheck.refresh

    def counting(*args: Any) -> Any:
        nonlocal refreshed
        refreshed += 1
        return refresh(*args)

    monkeypatch.setattr(GuardCheck, "refresh", counting)

    class Metric:
        def __init__(self) -> None:
            self.count = kind(0)

        def update(self, x: Tensor) -> Tensor:
            count = self.count
            self.count = kind(0)
            if torch.isnan(x).any():
                x = torch.nan_to_num(x)
            self.count = count + 1
            return x.sum() * 2

    mine, other = Metric(), Metric()
    fast = hostjit.compile(mine.update)
    for call in range(12):
        x = torch.randn(5)
        assert_close(fast(x), other.update(x))
        assert mine.count == other.count and type(mine.count) is kind
        if call == 7:
            programs, before = len(fast.specializations), refreshed
    assert len(fast.specializations) == programs <= 3
    assert refreshed == before
    mine.count, other.count = "n", "n"  # type: ignore[assignment]
    with pytest.raises(TypeError):
        other.update(x)
    with pytest.raises(TypeError):
        fast(x)
