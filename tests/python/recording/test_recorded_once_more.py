# SPDX-License-Identifier: Apache-2.0
"""Calls left to parts that are compiled again and again: they are recorded after all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit
from hostjit import _C

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Solver:
    """As solvers of differential equations are written: one for each call, and loops in it."""

    def __init__(self, net: nn.Module, state: Tensor, step: float | None) -> None:
        self.net = net
        self.state = state
        self.step = step

    def grid(self, times: Tensor) -> Tensor:
        if self.step is None:
            return times
        count = torch.ceil((times[-1] - times[0]) / self.step + 1).item()
        found = torch.arange(0, count, dtype=times.dtype) * self.step + times[0]
        found[-1] = times[-1]
        return found

    def integrate(self, times: Tensor) -> Tensor:
        grid = self.grid(times)
        solution = torch.empty(len(times), *self.state.shape)
        solution[0] = self.state
        index, state = 1, self.state
        for begin, end in zip(grid[:-1], grid[1:], strict=True):  # noqa: RUF007
            after = state + (end - begin) * self.net(state)
            while index < len(times) and end >= times[index]:
                slope = (after - state) / (end - begin)
                solution[index] = state + slope * (times[index] - begin)
                index += 1
            state = after
        return solution


@pytest.mark.parametrize(("sizes", "step"), [((1, 2, 3), None), ((2,), 0.25)])
def test_solvers(sizes: tuple[int, ...], step: float | None) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    times = torch.linspace(0.0, 1.0, 4)

    def solve(state: Tensor, times: Tensor) -> Tensor:
        return Solver(net, state, step).integrate(times)

    fast = hostjit.compile(solve)
    with torch.no_grad():
        for number in range(60):
            state = torch.randn(sizes[number % len(sizes)], 2)
            before = _C.num_compiled_frames()
            assert_close(fast(state, times), solve(state, times))
            if number >= 40:
                assert _C.num_compiled_frames() == before
    assert fast.owner._recorded is not None
    assert "program @" in fast.host_ir()


@pytest.mark.parametrize("differ", [False, True])
def test_they_are_where_they_were_given_up_for_what_differs(
    differ: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: Tensor) -> Tensor:
        print("in the middle", end="")
        return x + 1

    fast: Any = hostjit.compile(function)
    fast(torch.ones(2))
    owner = fast.owner
    owner.record_no_more()
    if differ:
        owner.note_calls_differ()
    monkeypatch.setattr(owner, "_recordings", lambda: object() if owner._may_record else None)
    for _ in range(20):
        owner._record_all()
    assert owner.records_more == owner._may_record == differ
