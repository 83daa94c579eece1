# SPDX-License-Identifier: Apache-2.0
"""Classes that others change all the time: counters, switches that are set and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit
from hostjit.capturing.guards.full_check import GuardCheck

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*(runs (in parts|eagerly)|keeps meeting)")


class Settings:
    doubles = True
    scale = 2.0
    count = 0


class Doubling:
    """A context that sets a switch of a class, and puts it back."""

    def __init__(self, doubles: bool) -> None:
        self.doubles = doubles

    def __enter__(self) -> None:
        self.before = Settings.doubles
        Settings.doubles = self.doubles

    def __exit__(self, *_: object) -> None:
        Settings.doubles = self.before


class Counted(nn.Module):
    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Base:
    gain = 3

    def amplify(self, x: Tensor) -> Tensor:
        return x * self.gain


class Derived(Base):
    pass


DERIVED = Derived()


def ask(x: Tensor) -> Tensor:
    return x * 2 if Settings.doubles else x + 1


def scale(x: Tensor) -> Tensor:
    return torch.tanh(x * Settings.scale)


def ask_inside(x: Tensor) -> Tensor:
    with Doubling(False):
        return ask(x) - 1


def total(x: Tensor) -> Tensor:
    return x * sum(value for value in vars(Settings).values() if isinstance(value, int))


def names(x: Tensor) -> Tensor:
    return x * len([name for name in dir(Settings) if not name.startswith("__")])


def composed(x: Tensor) -> Tensor:
    return x * getattr(Settings, "sca" + "le") + getattr(Settings, "la" + "ter", 0)


def inherited(x: Tensor) -> Tensor:
    return DERIVED.amplify(x)


@pytest.fixture(autouse=True)
def classes_as_they_were() -> Iterator[None]:
    before = {kind: dict(vars(kind)) for kind in (Settings, Base, Derived, Counted)}
    yield
    for kind, items in before.items():
        for name in [name for name in vars(kind) if name not in items]:
            delattr(kind, name)
        for name, value in items.items():
            if vars(kind)[name] is not value:
                setattr(kind, name, value)


def change(number: int) -> None:
    """Change the classes ahead of a call."""
    Settings.count += 1
    Base.number = number  # type: ignore[attr-defined]
    if number % 3 == 0:
        Settings.doubles = not Settings.doubles
    if number % 4 == 0:
        Settings.scale += 0.5
    if number == 15:
        Settings.later = 5  # type: ignore[attr-defined]
    if number == 20:
        Settings.more = 9  # type: ignore[attr-defined]
    if number == 25:
        Derived.gain = 7
    if number == 30:
        Base.gain = 11
    if number == 34:
        Base.amplify = lambda self, x: x - self.gain  # type: ignore[method-assign]
    if number == 36:
        Derived.gain = property(lambda self: 2)  # type: ignore[assignment]


@pytest.mark.parametrize(
    "function",
    [ask, scale, ask_inside, total, names, composed, inherited],
    ids=lambda f: f.__name__,
)
def test_calls_see_what_changes(function: Callable[[Tensor], Tensor]) -> None:
    fast = hostjit.compile(function, fallback=True)
    x = torch.randn(4)
    for number in range(40):
        change(number)
        torch.testing.assert_close(fast(x), function(x))


def count(x: Any) -> None:
    Settings.count += 1


def switch(x: Any) -> None:
    Settings.doubles = False
    Settings.doubles = True


def count_calls(x: Any) -> None:
    Counted.calls += 1


@pytest.mark.parametrize(
    ("make", "between"),
    [
        (lambda: ask, count),
        (lambda: ask, switch),
        (lambda: scale, count),
        (lambda: ask_inside, count),
        (Counted, count_calls),
    ],
)
def test_what_nobody_reads_costs_no_look_at_the_guards(
    make: Callable[[], Any], between: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    function = make()
    fast = hostjit.compile(function, fallback=False)
    x = torch.randn(4)
    for _ in range(8):
        torch.testing.assert_close(fast(x), function(x))
        between(x)
    looks = []
    refresh = GuardCheck.refresh
    monkeypatch.setattr(
        GuardCheck, "refresh", lambda self, *given: looks.append(1) or refresh(self, *given)
    )
    for _ in range(8):
        torch.testing.assert_close(fast(x), function(x))
        between(x)
    assert not looks
