# SPDX-License-Identifier: Apache-2.0
"""Recorded code that counts, and does nothing else with the counter: replays count on."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit
from hostjit.bytecode.counting import only_counts

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")
GLOBAL_COUNT = 0


class Net(nn.Module):
    """A module that counts its calls, as right-hand sides of solvers do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 4)
        self.evaluations = 0

    def forward(self, x: Tensor) -> Tensor:
        self.evaluations += 1
        return torch.tanh(self.net(x))


class Solver:
    def __init__(self) -> None:
        self.net = Net()
        self.steps = 0
        self.rejected = 100

    def solve(self, x: Tensor) -> Tensor:
        for _ in range(4):
            if self.net(x).norm() > 1.0:
                self.rejected = self.rejected - 2
                x = x * 0.5
            x = x + 0.1 * self.net(x)
            self.steps += 1
        return x

    def counts(self) -> tuple[int, int, int]:
        return self.net.evaluations, self.steps, self.rejected


def _inputs(count: int) -> list[Tensor]:
    torch.manual_seed(1)
    few = [torch.randn(4) * (0.5 + i) for i in range(3)]
    return [few[i % 3] for i in range(count)]


@pytest.mark.parametrize("compile", [hostjit.capture, hostjit.compile])
def test_counters_go_on(compile: Callable[..., Any]) -> None:
    plain, counted = Solver(), Solver()
    fast = compile(counted.solve)
    with torch.no_grad():
        for index, x in enumerate(_inputs(40)):
            if index == 30:  # as a user may reset them
                plain.steps = counted.steps = -7
                plain.net.evaluations = counted.net.evaluations = 0
            assert_close(fast(x), plain.solve(x))
            assert counted.counts() == plain.counts()


def test_they_need_no_other_recordings() -> None:
    solver = Solver()
    fast = hostjit.capture(solver.solve)
    with torch.no_grad():
        x = _inputs(1)[0]
        for _ in range(10):
            fast(x)
        solver.steps = 12345
        fast(x)
    assert len(fast.specializations) == 1
    assert fast.captured is not None
    assert solver.steps == 12349


def test_a_counter_that_is_no_int_any_more_ends_replays() -> None:
    plain, counted = Solver(), Solver()
    fast = hostjit.capture(counted.solve)
    x = _inputs(1)[0]
    with torch.no_grad():
        for value in (0, 0, 0, 1.5, 2.5, True, 2**70, 3):
            plain.steps = counted.steps = value
            assert_close(fast(x), plain.solve(x))
            assert counted.steps == plain.steps
            assert type(counted.steps) is type(plain.steps)


class Reading(Solver):
    def solve(self, x: Tensor) -> Tensor:
        self.steps += 1
        return self.net(x) * (2.0 if self.steps % 3 == 0 else 1.0)


class Asking(Solver):
    name = "steps"

    def solve(self, x: Tensor) -> Tensor:
        self.steps += 1
        return self.net(x) * (2.0 if getattr(self, self.name) % 3 == 0 else 1.0)


class Holding(Solver):
    def solve(self, x: Tensor) -> Tensor:
        self.steps += 1
        return self.net(x) * (2.0 if vars(self)["ste" + "ps"] % 3 == 0 else 1.0)


class Assigning(Solver):
    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, 2 * value if name == "steps" else value)

    def solve(self, x: Tensor) -> Tensor:
        self.steps += 1
        return self.net(x)


class Described(Solver):
    _steps = 0

    @property
    def steps(self) -> int:  # type: ignore[override]
        return self._steps

    @steps.setter
    def steps(self, value: int) -> None:
        self._steps = value * 3 % 7

    def solve(self, x: Tensor) -> Tensor:
        self.steps += 1
        return self.net(x)


@pytest.mark.parametrize("compile", [hostjit.capture, hostjit.compile])
@pytest.mark.parametrize("kind", [Reading, Asking, Holding, Assigning, Described])
def test_what_is_more_than_a_counter(kind: type[Solver], compile: Callable[..., Any]) -> None:
    plain, counted = kind(), kind()
    fast = compile(counted.solve)
    with torch.no_grad():
        for x in _inputs(20):
            assert_close(fast(x), plain.solve(x))
            assert counted.counts() == plain.counts()


def _of_globals(x: Tensor) -> Tensor:
    global GLOBAL_COUNT
    GLOBAL_COUNT += 1
    while x.norm() > 1.0:
        x = x * 0.5
        GLOBAL_COUNT += 1
    return x


def test_a_global() -> None:
    global GLOBAL_COUNT
    fast = hostjit.capture(_of_globals)
    found = []
    for function in (_of_globals, fast):
        GLOBAL_COUNT = 0
        found.append([(function(x).tolist(), GLOBAL_COUNT) for x in _inputs(20)])
    assert found[0] == found[1]
    assert fast.captured is not None


def test_an_operator_that_raises_ahead_of_the_end() -> None:
    plain, counted = Solver(), Solver()

    def look_up(solver: Solver, table: Tensor, index: Tensor) -> Tensor:
        solver.steps += 1
        found = table[index]
        solver.steps += 1
        return found * 2

    fast = hostjit.capture(lambda table, index: look_up(counted, table, index))
    table = torch.arange(5.0)
    for _ in range(5):
        fast(table, torch.tensor([1]))
        look_up(plain, table, torch.tensor([1]))
    for function in (fast, lambda *given: look_up(plain, *given)):
        with pytest.raises(IndexError):
            function(table, torch.tensor([9]))
    assert counted.steps == plain.steps


def _of(source: str) -> types.CodeType:
    scope: dict[str, Any] = {}
    exec(source, scope)
    code: types.CodeType = scope["f"].__code__
    return code


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("self.n += 1", True),
        ("self.n -= 3; self.a.b.n += 1000", True),
        ("self.n = self.n + 2", True),
        ("n = self.n; n += 1", False),
        ("self.n = other.n + 2", False),
        ("self.n += self.k", False),
        ("self.n += 1.0", False),
        ("self.n *= 2", False),
        ("self.n += 1; return self.n", False),
        ("self.n += 1; self.n()", False),
        ("del self.n", False),
        ("n = 3; return n", True),
        ("return n(self)", True),
        ("for _ in range(3): self.n += 1", True),
    ],
)
def test_code_that_only_counts(body: str, expected: bool) -> None:
    assert only_counts(_of(f"def f(self, other):\n  {body}"), "n") is expected


def test_code_that_only_counts_by_a_global() -> None:
    assert only_counts(_of("def f():\n  global n\n  n += 1"), "n", is_global=True)
    assert not only_counts(_of("def f():\n  return n"), "n", is_global=True)
    assert not only_counts(_of("def f(x):\n  return x.n"), "n", is_global=True)
