# SPDX-License-Identifier: Apache-2.0
"""State that calls replace, and return: environments whose episodes end, filters that are reset."""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit.capturing.program import CapturedProgram
from hostjit.compiling.revalidations import Revalidations
from hostjit.replacements import replaced_attribute

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Environment:
    """Ends its episode by what is in a tensor."""

    def __init__(self) -> None:
        self.x = torch.ones(4)

    def step(self) -> tuple[Tensor, bool]:
        self.x = self.x + 1
        done = bool(self.x[0] > 4)
        if done:
            self.x = torch.zeros(4)
        return self.x, done


class Returning(Environment):
    """Returns where its episode ends."""

    def step(self) -> tuple[Tensor, bool]:
        self.x = self.x + 1
        if self.x[0] > 4:
            self.x = torch.zeros(4)
            return self.x, True
        return self.x, False


class Counting(Environment):
    """Ends its episode by a counter, and reads a reward."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.rewards = 0, 0.0

    def step(self) -> tuple[Any, ...]:
        self.x = self.x + 1
        self.count += 1
        self.rewards += self.x.sum().item()
        if self.count >= 5:
            self.count, self.x = 0, torch.zeros(4)
        return self.x, self.rewards, {"last": [self.x]}


class Viewing(Environment):
    """Returns views of its state, too."""

    def step(self) -> tuple[Tensor, ...]:
        self.x = self.x + 1
        done = bool(self.x[0] > 4)
        if done:
            self.x = torch.zeros(4 if self.x[1] < 9 else 6)
        return self.x, self.x[1:], self.x.view(2, -1)


class Stacking(Environment):
    """Has the last frames in a deque."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.frames = collections.deque([self.x] * 3, maxlen=3)

    def step(self) -> Tensor:
        self.x = self.x + 1
        self.count += 1
        self.frames.append(self.x)
        stacked = torch.stack(tuple(self.frames))
        if self.count >= 5:
            self.count = 0
            self.frames.extend([self.x] * 3)
        return stacked


class Mode(enum.Enum):
    """Of a controller."""

    IDLE = 1
    RUNNING = 2


class Logging:
    """Counts, and writes a log, by its mode."""

    def __init__(self) -> None:
        self.mode, self.log, self.calls = Mode.IDLE, [""], 0
        self.total = torch.zeros(())
        self.counts: collections.Counter[str] = collections.Counter()

    def step(self) -> Tensor:
        self.calls += 1
        error = torch.tensor(self.calls % 10 / 10)
        self.counts[self.mode.name] += 1
        if self.mode is Mode.IDLE:
            if abs(error) < 0.2:
                self.mode = Mode.RUNNING
                self.log.append("runs")
            self.total = self.total + error
            return self.total
        if error.abs() > 0.5:
            self.mode = Mode.IDLE
            self.log.append("stops")
            self.total = torch.zeros(())
        return 0.5 * error


class Key(NamedTuple):
    """Of a state."""

    size: int
    kind: str = "linear"


class Keyed:
    """Has a state for each key."""

    def __init__(self) -> None:
        self.states: dict[Key, Tensor] = {}
        self.calls = 0

    def step(self) -> Tensor:
        self.calls += 1
        key = (Key(3), Key(3), Key(3, "other"), Key(2), Key(3), Key(4))[self.calls % 6]
        x = self.states.setdefault(key, torch.zeros(key.size)) * 0.9 + 1
        self.states[key] = x
        return x


@pytest.mark.parametrize("how", ["hostjit.compile", "torch.compile"])
@pytest.mark.parametrize(
    "kind", [Environment, Returning, Counting, Viewing, Stacking, Logging, Keyed]
)
def test_calls_are_as_eagers(kind: Any, how: str) -> None:
    torch._dynamo.reset()
    kept, given = kind(), kind()
    if how == "hostjit.compile":
        fast = hostjit.compile(given.step)
    else:
        fast = torch.compile(given.step, backend="hostjit")
    for _ in range(80):
        found, expected = fast(), kept.step()
        assert_close(found, expected)
        state = [(vars(each)[name] for name in vars(kept)) for each in (given, kept)]
        for here, there in zip(*state, strict=True):
            if isinstance(there, Tensor):
                assert_close(here, there)
            elif isinstance(there, (collections.Counter, int, float, enum.Enum)):
                assert here == there
        if isinstance(kept, Environment) and isinstance(expected, tuple):
            assert (found[0] is given.x) == (expected[0] is kept.x)


@pytest.mark.parametrize("kind", [Environment, Returning])
def test_returned_state_may_be_another_tensor(kind: Any) -> None:
    """Nobody looks at the guards again, and few programs are for all calls."""
    given = kind()
    fast = hostjit.compile(given.step)
    for _ in range(30):
        fast()
    looks = [0]
    original = CapturedProgram.revalidate

    def revalidate(*args: Any) -> bool:
        looks[0] += 1
        return original(*args)

    with replaced_attribute(CapturedProgram, "revalidate", revalidate):
        for _ in range(30):
            found, _ = fast()
            assert found is given.x
    assert looks[0] == 0


def test_returned_state_is_bound_anew() -> None:
    """A function that returns what it did not make, by a name, of whatever is there."""
    held = {"x": torch.ones(3), "scale": 2.0}

    def read(y: Tensor) -> tuple[Any, ...]:
        return held["x"], (held["x"], y * held["scale"])

    fast = hostjit.compile(read, fallback=False)
    y = torch.arange(3.0)
    for number in range(6):
        held["x"] = torch.full((3,), float(number))
        first, (second, product) = fast(y)
        assert first is held["x"] and second is first
        assert_close(product, y * held["scale"])
        if number % 2:
            held["scale"] = held["scale"] + 1.0
    held["x"] = torch.ones(2, 2, dtype=torch.float64)
    assert fast(y)[0] is held["x"]
    assert len(fast.specializations) <= 3


def test_a_program_that_was_refused_often_is_asked_again() -> None:
    class Settings:
        kind = "kind 0"

    settings = Settings()

    def scale(x: Tensor) -> Tensor:
        return x * float(settings.kind.split()[1]) if settings.kind else x

    fast = hostjit.compile(scale, fallback=False)
    x = torch.ones(3)
    for number in (*range(8), *range(8, 60), 0):  # beyond the limit, eager answers
        settings.kind = f"kind {number}"
        assert_close(fast(x), scale(x))
    first = fast.match(x)
    assert first is not None and first.describe()["route"] is None
    settings.kind = "kind 1"
    assert fast.match(x) is fast.specializations[0] is not first
    for number in range(60, 120):
        settings.kind = f"kind {number}"
        assert_close(fast(x), scale(x))
    settings.kind = "kind 0"
    for _ in range(300):
        assert_close(fast(x), scale(x))
    assert fast.specializations[0] is first


def test_looking_again_is_too_much_when_it_takes_the_time() -> None:
    now = [0.0]

    def looked(seconds: float, between: float, count: int) -> Revalidations:
        found = Revalidations(clock=lambda: now[0])

        def look() -> tuple[Any, ...]:
            now[0] += seconds
            return ()

        timed: Callable[[], Any] = found.timed(look)
        for _ in range(count):
            now[0] += between
            timed()
        return found

    assert looked(1e-3, 1e-5, 40).are_too_many
    assert not looked(1e-3, 1e-5, 20).are_too_many
    assert not looked(1e-3, 1e-1, 200).are_too_many
    assert looked(1e-3, 1e-5, 40).timed(lambda: ())() is None
