# SPDX-License-Identifier: Apache-2.0
"""Calls that change Python state in some lines: Python runs these, what is around is a program."""

from __future__ import annotations

import collections
import copy
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit
from hostjit.compiling.around_changes import CallsAroundChanges, Places, names_in_path, touched

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Adapter:
    """Learns from the last observations, as an online model of the dynamics does."""

    def __init__(self, window: Any) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 2))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.window = window
        self.kept: list[Tensor] = []
        self.count = 0

    def keep(self, x: Tensor, y: Tensor) -> None:
        self.window.append((x, y))
        if len(self.window) > 4:
            del self.window[0]

    def learn(self, inputs: Tensor, targets: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(self.net(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def in_lines(self, x: Tensor, y: Tensor) -> float:
        self.window.append((x, y))
        if len(self.window) > 4:
            del self.window[0]
        inputs = torch.stack([pair[0] for pair in self.window])
        targets = torch.stack([pair[1] for pair in self.window])
        loss = nn.functional.mse_loss(self.net(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def in_what_it_calls(self, x: Tensor, y: Tensor) -> Tensor:
        self.keep(x, y)
        inputs = torch.stack([pair[0] for pair in self.window])
        targets = torch.stack([pair[1] for pair in self.window])
        return self.learn(inputs, targets)

    def returns_early(self, x: Tensor, y: Tensor) -> Tensor | None:
        self.window.append((x, y))
        if len(self.window) < 3:
            return None
        inputs = torch.stack([pair[0] for pair in self.window])
        targets = torch.stack([pair[1] for pair in self.window])
        del self.window[0]
        return self.learn(inputs, targets)

    def behind(self, x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(self.net(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.count += 1
        if self.count % 3 == 0:
            self.kept = [*self.kept[-2:], loss.detach() * 2]
        return loss.detach()

    def on_both_sides(self, x: Tensor, y: Tensor) -> Tensor:
        ahead = torch.tanh(x * 2).cumsum(0) + 1
        self.window.append((x, y))
        if len(self.window) > 4:
            del self.window[0]
        return self.learn(ahead, y)

    @torch.no_grad()
    def decorated(self, x: Tensor, y: Tensor) -> Tensor:
        self.window.append((x, y))
        if len(self.window) > 4:
            del self.window[0]
        inputs = torch.stack([pair[0] for pair in self.window])
        return self.net(inputs).mean(0)


def state_of(adapter: Adapter) -> Any:
    state = [p.detach() for p in adapter.net.parameters()], [*adapter.window], adapter.kept
    return copy.deepcopy((*state, adapter.count))


def calls_of(name: str, window: Any, make: Callable[[Any], Any], calls: int = 24) -> list[Any]:
    adapter = Adapter(copy.copy(window))
    call = make(getattr(adapter, name))
    draw = torch.Generator().manual_seed(1)
    found = []
    for _ in range(calls):
        x, y = torch.randn(3, generator=draw), torch.randn(2, generator=draw)
        found.append((call(x, y), state_of(adapter)))
    return found


METHODS = ["in_lines", "in_what_it_calls", "returns_early", "behind", "on_both_sides", "decorated"]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("window", [[], collections.deque(maxlen=4)], ids=["list", "deque"])
def test_calls_are_eagers(name: str, window: Any) -> None:
    found, expected = (calls_of(name, window, make) for make in (hostjit.compile, lambda x: x))
    assert_close(found, expected, rtol=1e-5, atol=1e-6)


def functions_run(call: Callable[..., Any], *args: Any) -> collections.Counter[str]:
    seen: collections.Counter[str] = collections.Counter()

    def note(frame: types.FrameType, event: str, _: Any) -> None:
        seen[frame.f_code.co_name] += event == "call"

    sys.setprofile(note)
    try:
        call(*args)
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("name", METHODS)
def test_the_rest_is_a_program(name: str) -> None:
    adapter = Adapter([])
    call = hostjit.compile(getattr(adapter, name))
    given = torch.ones(3), torch.ones(2)
    for _ in range(40):
        call(*given)
    assert functions_run(call, *given).keys().isdisjoint({"forward", "backward", "mse_loss"})
    assert "program @Adapter" in call.host_ir()


def test_errors_are_eagers() -> None:
    adapter = Adapter([])
    call = hostjit.compile(adapter.in_lines)
    for _ in range(20):
        call(torch.ones(3), torch.ones(2))
    with pytest.raises(RuntimeError, match="size"):
        call(torch.ones(4), torch.ones(2))
    assert len(adapter.window) == 4  # the line that failed is behind those that changed it
    assert adapter.window[-1][0].shape == (4,)


def test_calls_that_come_later_find_other_methods() -> None:
    adapter = Adapter([])
    call = hostjit.compile(adapter.in_what_it_calls)
    for _ in range(20):
        call(torch.ones(3), torch.ones(2))
    adapter.learn = lambda inputs, targets: inputs.sum() + len(targets)  # type: ignore[method-assign]
    assert_close(call(torch.ones(3), torch.ones(2)), torch.tensor(16.0))


class Worker:
    """Has little to compute around what it changes."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def step(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        total = sum(((each * 2 + 1).tanh() for each in self.seen[-2:]), x)
        self.seen = self.seen[-3:]
        return total


def test_where_it_does_not_pay() -> None:
    found, expected = [], []
    for results, make in ((found, hostjit.compile), (expected, lambda x: x)):
        worker = Worker()
        call = make(worker.step)
        for i in range(16):
            results.append((call(torch.full((2,), float(i))), [*worker.seen]))
    assert_close(found, expected)


def test_names() -> None:
    class Agent:
        def step(self, tracks: Any) -> None: ...

    step = Agent().step
    target = step.__qualname__
    assert names_in_path(f"{target}.memory.n", step) == [{"n"}, {"memory"}]
    assert names_in_path(f"{target}.counts['left']", step) == [{"counts", "left"}]
    assert names_in_path("L['self'].window", step) == [{"window"}, {"self"}]
    assert names_in_path("L['window']", step) == [{"window"}]
    assert names_in_path("argument 0.x", step) == [{"x"}, {"tracks"}]
    assert names_in_path(f"'count' of {target}", step) == [{"count"}]


def test_lines_that_have_to_do_with_it() -> None:
    code = Adapter.in_what_it_calls.__code__
    keep = Adapter.keep.__code__
    assert touched(code, [{"absent"}], [keep]) == []
    by_name = touched(code, [{"window"}], [])
    with_calls = touched(code, [{"window"}], [keep])
    assert with_calls[0] < by_name[0]
    assert with_calls[-1] == by_name[-1]
    assert touched(code, [{"absent"}, {"window"}], []) == by_name
    places = Places(code, [[{"window"}]], [keep])
    assert places.behind is not None
    assert places.behind > by_name[-1]
    assert not Places(code, [[{"absent"}]], [])


def test_calls_that_never_get_there() -> None:
    def step(seen: list[int], x: Tensor) -> Tensor | None:
        seen.append(1)
        if len(seen) < 1000:
            return None
        return (x * 2).tanh()

    places = Places(step.__code__, [[{"seen"}]], [])
    assert places.behind is not None
    asked = []

    def otherwise() -> Callable[..., Any]:
        asked.append(True)
        return step

    def as_it_is(part: Callable[..., Any]) -> Callable[..., Any]:
        return part

    calls = CallsAroundChanges(step, (), places, as_it_is, as_it_is, otherwise)
    seen: list[int] = []
    for _ in range(80):
        assert calls(seen, torch.ones(2)) is None
    assert asked == [True]
    assert len(seen) == 80
