# SPDX-License-Identifier: Apache-2.0
"""The rest of a call that only keeps books is left to Python, and windows of numbers with it."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit.bytecode.plain_python import is_plain_python
from hostjit.compiling.specializer import Specializer

COMPILERS: dict[str, Callable[[Any], Any]] = {
    "compile": hostjit.compile,
    "backend": lambda function: torch.compile(function, backend="hostjit"),
}
_log = logging.getLogger(__name__)


@dataclasses.dataclass
class Report:
    loss: float


@dataclasses.dataclass
class Checked:
    loss: float

    def __post_init__(self) -> None:
        self.loss = torch.tensor(self.loss).item()


class Meter:
    def __init__(self) -> None:
        self.values: list[float] = []
        self.layer = torch.relu

    def update(self, value: float) -> None:
        self.values.append(value)
        if len(self.values) > 20:
            self.values.pop(0)

    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    def spread(self) -> Any:
        return torch.tensor(self.values).std()


def appends(self: Meter, loss: float) -> Any:
    self.values.append(loss)
    if len(self.values) > 3:
        self.values.pop(0)
    return {"mean": sum(self.values) / len(self.values), "loss": f"{loss:.3f}"}


def comprehends(self: Meter, names: list[str]) -> Any:
    return {name: round(max(x for x in self.values), 2) for name in names}, [str(n) for n in names]


def calls_functions(self: Meter, loss: float) -> Any:
    if not math.isfinite(loss):
        raise ValueError(f"loss is {loss}")
    _log.debug("loss %f", loss)
    return Report(loss), json.dumps({"loss": loss}), sorted(self.values, key=lambda x: -x)


def calls_methods(self: Meter) -> Any:
    return self.mean()


def computes(self: Meter, loss: float) -> Any:
    if loss > 3:
        return torch.zeros(3)
    return loss


def computes_below(self: Meter) -> Any:
    return self.spread()


def computes_inside(self: Meter) -> Any:
    return [torch.tensor(x) for x in self.values]


def calls_what_it_has(self: Meter, x: Any) -> Any:
    return self.layer(x)


def calls_what_it_is_given(self: Meter, run: Any) -> Any:
    return run(self.values)


def makes_checked(self: Meter) -> Any:
    return Checked(3.0)


def has_a_context(self: Meter) -> Any:
    with torch.no_grad():
        return self.values


def maps(self: Meter) -> Any:
    return list(map(torch.tensor, self.values))


def yields(self: Meter) -> Iterator[float]:
    yield from self.values


PLAIN = [appends, comprehends, calls_functions, calls_methods]
OTHERS = [
    *(computes, computes_below, computes_inside, calls_what_it_has, calls_what_it_is_given),
    *(makes_checked, has_a_context, maps, yields),
]


@pytest.mark.parametrize("function", [*PLAIN, *OTHERS])
def test_what_is_plain(function: Any) -> None:
    assert is_plain_python(function, (Meter(),), operators=True) is (function in PLAIN)


@pytest.mark.parametrize("run", [torch.Generator().manual_seed, torch.ones(2).sum, torch.sin, 3])
def test_what_is_given_is_not_known(run: Any) -> None:
    assert not is_plain_python(calls_what_it_is_given, (Meter(), run), operators=True)


def test_a_method_of_a_list_that_is_given_is_known() -> None:
    assert is_plain_python(calls_what_it_is_given, (Meter(), [].append), operators=True)


def test_operators_may_be_of_tensors() -> None:
    assert not is_plain_python(calls_methods, (), operators=True)  # of whatever it is
    assert not is_plain_python(appends, (Meter(),), operators=False)
    assert is_plain_python(calls_methods, (Meter(),), operators=False)


class Agent:
    """Acts, and keeps the last numbers that it has seen."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = torch.nn.Linear(4, 2)
        self.values: list[Any] = []
        self.last: collections.deque[float] = collections.deque(maxlen=20)
        self.times: list[float] = []
        self.meter = Meter()


def mean_of_a_window(self: Agent, x: Tensor, gain: float) -> Any:
    y = self.net(x)
    self.values.append(y.mean().item())
    if len(self.values) > 20:
        self.values.pop(0)
    return y, sum(self.values) / len(self.values)


def slice_of_a_window(self: Agent, x: Tensor, gain: float) -> Any:
    y = self.net(x)
    self.values.append(float(y.mean()))
    self.values = self.values[-20:]
    return y, max(self.values), min(self.values)


def used_behind(self: Agent, x: Tensor, gain: float) -> Any:
    y = self.net(x)
    self.last.append(y.mean().item())
    mean = sum(self.last) / len(self.last)
    return torch.tanh(y * mean) + 1, mean


def of_numbers_given(self: Agent, x: Tensor, gain: float) -> Any:
    self.last.append(gain)
    return torch.tanh(self.net(x) * (sum(self.last) / len(self.last)))


def of_tensors(self: Agent, x: Tensor, gain: float) -> Any:
    self.values.append(self.net(x))
    if len(self.values) > 4:
        self.values.pop(0)
    return torch.stack(self.values).mean(0)


def a_trend(self: Agent, x: Tensor, gain: float) -> Any:
    y = self.net(x)
    self.values.append(y.mean().item())
    if len(self.values) > 20:
        del self.values[0]
    if len(self.values) > 9 and sum(self.values[-3:]) < sum(self.values[-6:-3]):
        y = y * 0.5
    return y


def means_of_a_meter(self: Agent, x: Tensor, gain: float) -> Any:
    y = self.net(x)
    self.meter.update(y.mean().item())
    self.meter.update(y.norm().item())
    return y, {"mean": round(self.meter.mean(), 4)}


def what_python_gives(self: Agent, x: Tensor, gain: float) -> Any:
    begin = time.perf_counter()
    y = self.net(x)
    self.times.append(time.perf_counter() - begin)
    self.values.append(len(self.times))
    return y


WINDOWS = [
    *(mean_of_a_window, slice_of_a_window, used_behind, of_numbers_given, of_tensors, a_trend),
    *(means_of_a_meter, what_python_gives),
]


@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
@pytest.mark.parametrize("way", list(COMPILERS))
@pytest.mark.parametrize("function", WINDOWS)
def test_windows(function: Any, way: str) -> None:
    expected, found = Agent(), Agent()
    fast = COMPILERS[way](functools.partial(function, found))
    torch.manual_seed(1)
    with torch.no_grad():
        for index in range(50):
            if index == 30:
                programs = Specializer.num_programs
            x, gain = torch.randn(4), float(index % 7)
            assert_close(fast(x, gain), function(expected, x, gain))
    assert_close(found.values, expected.values)
    assert_close(found.meter.values, expected.meter.values)
    assert_close([*found.last], [*expected.last])
    assert len(found.times) == len(expected.times)
    if way == "compile":
        assert Specializer.num_programs == programs


def test_windows_in_one_graph() -> None:
    """Nothing may be stopped at there: it is a program for each length, as with other backends."""
    torch.compiler.reset()
    expected, found = Agent(), Agent()
    function = functools.partial(of_numbers_given, found)
    fast = torch.compile(function, backend="hostjit", fullgraph=True)
    for index in range(5):
        x = torch.randn(4)
        assert_close(fast(x, index / 2), of_numbers_given(expected, x, index / 2))
    assert found.last == expected.last


@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
def test_a_list_that_code_looks_at_behind_a_break_only_grows_ahead_of_it() -> None:
    agent = Agent()
    fast = hostjit.compile(functools.partial(mean_of_a_window, agent))
    with torch.no_grad():
        for _ in range(4):
            fast(torch.randn(4), 1.0)
    assert len(fast.specializations) == 1
