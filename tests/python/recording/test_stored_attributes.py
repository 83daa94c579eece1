# SPDX-License-Identifier: Apache-2.0
"""Objects with state: calls that choose by values, and assign tensors and numbers to attributes."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Resets:
    """Both sides assign a tensor."""

    def __init__(self) -> None:
        self.integral, self.last = torch.zeros(4), torch.zeros(4)

    def step(self, x: Tensor) -> Tensor:
        error = 1.0 - x
        if error.abs().max() > 1.5:
            self.integral = torch.zeros_like(self.integral)
        else:
            self.integral = self.integral + error * 0.01
        slope = error - self.last
        self.last = error
        return 0.5 * error + 0.1 * self.integral + 0.01 * slope


class KeepsTheBest:
    """One side assigns: otherwise there is the very tensor that was there."""

    def __init__(self) -> None:
        self.best, self.plan = torch.full((), 1e9), torch.zeros(4)

    def step(self, x: Tensor) -> Tensor:
        cost = x.square().sum()
        if cost < self.best:
            self.best = cost
            self.plan = x.clone()
        self.best = self.best * 1.05
        return self.plan * 2


class ReturnsThePlan(KeepsTheBest):
    def step(self, x: Tensor) -> Tensor:
        super().step(x)
        return self.plan


class Counts:
    def __init__(self) -> None:
        self.count, self.mean = 0, torch.zeros(4)

    def step(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.count += 1
            self.mean = self.mean * 0.9 + x
        return self.mean * 2


class Filter:
    """A Kalman filter that leaves out what is far off, and counts that."""

    def __init__(self) -> None:
        self.x, self.p, self.skipped = torch.zeros(2), torch.eye(2), 0

    def step(self, z: Tensor) -> Tensor:
        f, h = torch.tensor([[1.0, 0.1], [0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
        self.x, self.p = f @ self.x, f @ self.p @ f.T + 0.01 * torch.eye(2)
        s = (h @ self.p @ h.T)[0, 0] + 0.1
        r = z[0] - self.x[0]
        if (r * r / s).item() < 3.0:
            k = (self.p @ h.T)[:, 0] / s
            self.x = self.x + k * r
            self.p = self.p - torch.outer(k, (h @ self.p)[0])
        else:
            self.skipped += 1
        return self.x


class Numbers:
    """A controller whose state is numbers."""

    def __init__(self) -> None:
        self.integral, self.last = 0.0, 0.0

    def step(self, x: Tensor) -> Tensor:
        error = 1.0 - x[0].item()
        self.integral += error * 0.1
        if self.integral > 1.0:
            self.integral = 1.0
        elif self.integral < -1.0:
            self.integral = -1.0
        slope = error - self.last
        self.last = error
        return x * (2.0 * error + 0.5 * self.integral + 0.1 * slope)


class Patience:
    def __init__(self) -> None:
        self.best, self.plan, self.since = 1e9, torch.zeros(4), 0

    def step(self, x: Tensor) -> tuple[Tensor, int]:
        cost = x.square().sum().item()
        if cost < self.best:
            self.best = cost
            self.plan = x.clone()
            self.since = 0
        else:
            self.since += 1
        self.best = self.best * 1.05
        return self.plan * 2, self.since


class NotesTheCost:
    def __init__(self) -> None:
        self.cost = 0.0

    def step(self, x: Tensor) -> Tensor:
        cost = x.square().sum()
        self.cost = cost.item()
        return x / (cost + 1)


class Sub:
    def __init__(self) -> None:
        self.level, self.hits = torch.zeros(4), 0


class OfAnother:
    """The attributes are those of another object, in a variable."""

    def __init__(self) -> None:
        self.sub = Sub()

    def step(self, x: Tensor) -> Tensor:
        sub = self.sub
        if x.mean() > 0:
            sub.level = sub.level + x
            sub.hits += 1
        else:
            sub.level = sub.level * 0.5
        return sub.level - 1


class ByMethods:
    def __init__(self) -> None:
        self.level, self.count = torch.zeros(4), 0

    def update(self, x: Tensor) -> None:
        if x.mean() > 0:
            self.level = self.level + x
            self.count = self.count + 1

    def step(self, x: Tensor) -> Tensor:
        self.update(x)
        self.update(x - 0.5)
        return self.level * 2


class AssignsAndReads:
    """What a side has assigned, it reads."""

    def __init__(self) -> None:
        self.a, self.b = torch.zeros(4), torch.ones(4)

    def step(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.a = x + self.b
            self.b = self.a * 0.5
            if x[0] > 0:
                self.a = self.a - self.b
        return self.a + self.b


ONE_RECORDING = (
    *(Resets, KeepsTheBest, Counts, Filter, Numbers, Patience, NotesTheCost, ByMethods),
    AssignsAndReads,
)


class ByTwoNames:
    def __init__(self) -> None:
        self.a = torch.zeros(4)

    def step(self, x: Tensor) -> Tensor:
        other = self
        if x.sum() > 0:
            self.a = x * 2
            other.a = other.a + 1
            x = self.a - 1
        return self.a + x


class OneTensorInTwo:
    def __init__(self) -> None:
        self.a = self.b = torch.zeros(4)

    def step(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.a = x * 2
            self.b = self.a
        elif x[0] > 0:
            self.b = self.a
        return self.a + self.b


class HasAProperty:
    def __init__(self) -> None:
        self.values: list[Tensor] = []
        self.kept = torch.zeros(4)

    @property
    def level(self) -> Tensor:
        return self.kept

    @level.setter
    def level(self, value: Tensor) -> None:
        self.kept = value * 2

    def step(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.level = x
        return self.level + 1


class WatchesAssignments:
    def __init__(self) -> None:
        self.__dict__.update(a=torch.zeros(4), count=0)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["count"] += 1
        self.__dict__[name] = value

    def step(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.a = x
        return self.a * 2


class OfALayer:
    """What a side assigns, the layer that it calls reads."""

    def __init__(self) -> None:
        self.norm = torch.nn.LayerNorm(4)

    def step(self, x: Tensor) -> Tensor:
        norm = self.norm
        y = x * 2
        if x.sum() > 0:
            norm.eps = 1.0
            y = norm(x)
            norm.eps = 0.5
        return y + norm(x)


class InOrder:
    """New attributes are in the order in which they were assigned."""

    def step(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.second = x * 2
            self.first = x * 3
        elif x[0] > 0:
            vars(self).clear()
        return x + 1


class HasSlots:
    __slots__ = ("__weakref__", "a")

    def __init__(self) -> None:
        self.a = torch.zeros(4)

    def step(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.a = x * 2
        return self.a + 1


class NewAttributes:
    """There is nothing before a side has assigned it."""

    def step(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.a = x * 2
        elif hasattr(self, "a"):
            del self.a
        return self.a + 1 if hasattr(self, "a") else x


class OfTheClass:
    """Before a call assigns it, an attribute is that of the class."""

    seen = False
    last: Tensor | None = None

    def step(self, x: Tensor) -> Tensor:
        y = x * 1
        if x.sum() > 0:
            if self.seen:
                y = x * 2
            if self.last is None:
                y = y + 10
            self.seen = True
            self.last = x * 3
        elif x[0] > 0:
            self.seen = False
        return y


class ResetsToNothing:
    def __init__(self) -> None:
        self.last: Tensor | None = None
        self.best = math.inf

    def step(self, x: Tensor) -> Tensor:
        slope = x if self.last is None else x - self.last
        self.last = x * 1
        cost = x.sum().item()
        if cost < self.best:
            self.best = cost
        if x[0] > 1:
            self.last, self.best = None, math.inf
        return slope


class LooksAtAll:
    """Code that looks at all attributes finds numbers."""

    def __init__(self) -> None:
        self.cost, self.count, self.seen = 0.0, 0, 0

    def step(self, x: Tensor) -> Tensor:
        self.cost = x.sum().item()
        if x[0] > 0:
            self.count += 1
        if x[1] > 1:
            self.seen += sum(type(each) in (int, float) for each in vars(copy.copy(self)).values())
        return x * 2


class InPlace:
    def __init__(self) -> None:
        self.a = torch.zeros(4)

    def step(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.a += x
        else:
            self.a = self.a * 0.5
        return self.a * 2


class Raises:
    """What was assigned ahead of an error stays."""

    def __init__(self) -> None:
        self.a, self.count = torch.zeros(4), 0

    def step(self, x: Tensor) -> Tensor:
        try:
            if x.sum() > 0:
                self.a = x * 2
                self.count += 1
                self.a = self.a + torch.ones(3)
        except RuntimeError:
            return self.a * 10
        return self.a + 1


@dataclasses.dataclass
class Record:
    a: Tensor
    count: int


class OfArguments:
    def __init__(self) -> None:
        self.record = Record(torch.zeros(4), 0)

    def step(self, x: Tensor) -> Tensor:
        return advanced(x, self.record)


def advanced(x: Tensor, record: Record) -> Tensor:
    if x.sum() > 0:
        record.a = record.a + x
        record.count += 1
    return record.a * 2


OTHERS = (
    OfAnother,
    *(ReturnsThePlan, ByTwoNames, OneTensorInTwo, HasAProperty, WatchesAssignments, HasSlots),
    *(OfALayer, InOrder),
    *(NewAttributes, ResetsToNothing, LooksAtAll, InPlace, Raises, OfArguments),
)


def state_of(owner: Any) -> dict[str, Any]:
    found = dict(vars(owner)) if hasattr(owner, "__dict__") else {"a": owner.a}
    if "norm" in found:
        found["norm.eps"] = found.pop("norm").eps
    for name in ("sub", "record"):
        if name in found:
            found |= {f"{name}.{key}": value for key, value in vars(found.pop(name)).items()}
    return found


def calls(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(4, generator=generator) for _ in range(count)]


def check_state(found: Any, before: dict[str, Any], expected: Any, was: dict[str, Any]) -> None:
    """Compare attributes, and which of them are objects that were there."""
    now, wanted = state_of(found), state_of(expected)
    assert list(now) == list(wanted)
    for name, value in wanted.items():
        assert type(now[name]) is type(value), name
        torch.testing.assert_close(now[name], value, rtol=1e-5, atol=1e-5)
        if type(value) is Tensor:
            assert (now[name] is before.get(name)) == (value is was.get(name)), name
            same = [key for key in wanted if wanted[key] is value]
            assert [key for key in now if now[key] is now[name]] == same


@pytest.mark.parametrize("through", [hostjit.capture, hostjit.compile])
@pytest.mark.parametrize("kind", [*ONE_RECORDING, *OTHERS])
def test_objects_with_state(kind: type, through: Callable[..., Any]) -> None:
    found, expected = kind(), kind()
    step = through(found.step)
    for x in calls(30):
        before, was = state_of(found), state_of(expected)
        result, wanted = step(x.clone()), expected.step(x.clone())
        torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)
        check_state(found, before, expected, was)
        assert (result is state_of(found).get("plan")) == (wanted is state_of(expected).get("plan"))


@pytest.mark.parametrize("kind", ONE_RECORDING)
def test_one_recording_is_for_all_calls(kind: type) -> None:
    owner = kind()
    step = hostjit.capture(owner.step)
    for x in calls(40):
        step(x)
    assert len(step.specializations) == 1
    assert step.captured.reads == 0


def test_other_threads_read_numbers() -> None:
    """Also while the call is recorded."""
    owner = NotesTheCost()
    found: list[Any] = []

    def function(x: Tensor) -> Tensor:
        y = owner.step(x)
        reader = threading.Thread(target=lambda: found.append(owner.cost))
        reader.start()
        reader.join()
        return y

    step = hostjit.capture(function)
    for x in calls(6):
        step(x)
        assert type(found[-1]) is float
        assert found[-1] == pytest.approx(x.square().sum().item())


def test_attributes_that_become_other_numbers() -> None:
    """Somebody else assigns them between calls: an int, what is not finite, and nothing."""
    found, expected = Patience(), Patience()
    step = hostjit.capture(found.step)
    others: list[Any] = [0, math.inf, -math.inf, math.nan, 3.0]
    for number, x in enumerate(calls(40)):
        if number > 8 and number % 4 == 0:
            found.best = expected.best = others[number // 4 % 5]
            found.since = expected.since = number
        torch.testing.assert_close(step(x), expected.step(x))
        torch.testing.assert_close(found.best, expected.best, equal_nan=True)
        assert found.since == expected.since


def test_attributes_of_the_class() -> None:
    """Where the object has lost its own, there is what its class has."""
    found, expected = OfTheClass(), OfTheClass()
    step = hostjit.capture(found.step)
    for number, x in enumerate(calls(24)):
        if number % 4 == 1:
            vars(found).clear()
            vars(expected).clear()
        torch.testing.assert_close(step(x.abs()), expected.step(x.abs()))
        check_state(found, {}, expected, {})


def test_what_was_assigned_ahead_of_an_error_behind_a_draw() -> None:
    """Such a side cannot be run again."""

    def step(owner: Resets, x: Tensor, other: Tensor) -> Tensor:
        y = x * 1
        if x.sum() > 0:
            owner.last = x * 2
            y = torch.rand(4) + other
        return y + owner.last

    found, expected = Resets(), Resets()
    fast = hostjit.capture(lambda x, other: step(found, x, other))
    for number in range(8):
        x, other = torch.full((4,), number + 1.0), torch.ones(3 if number in (1, 2, 5) else 4)
        for run in (lambda: fast(x, other), lambda: step(expected, x, other)):  # noqa: B023
            torch.manual_seed(number)
            with contextlib.suppress(RuntimeError):
                run()
        torch.testing.assert_close(found.last, expected.last)
