# SPDX-License-Identifier: Apache-2.0
"""Numbers in objects, tuples, slots and classes: one program where each call brings others."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import hostjit

VALUES = (0.5, 0.25, -0.125, 7.0, 1.0, 0.0, 1e-3, 2.5, 3.5, -4.0, 5.5, 6.25)


@dataclasses.dataclass
class Options:
    dt: float
    gain: float = 2.0
    name: str = "plain"

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.dt + self.gain


@dataclasses.dataclass(frozen=True)
class Frozen:
    dt: float
    gain: float = 2.0


@dataclasses.dataclass(slots=True)
class Slotted:
    dt: float
    gain: float = 2.0


@dataclasses.dataclass
class Nested:
    inner: Options
    count: int = 3


class Pair(NamedTuple):
    dt: float
    gain: float


class Plain:
    factor = 0.5

    def __init__(self, dt: float, gain: float = 2.0) -> None:
        self.dt = dt
        self.gain = gain


KINDS: dict[str, Callable[[float], Any]] = {
    "dataclass": Options,
    "frozen": Frozen,
    "slots": Slotted,
    "namedtuple": lambda dt: Pair(dt, 2.0),
    "plain": Plain,
    "namespace": lambda dt: types.SimpleNamespace(dt=dt, gain=2.0),
}


def scale(x: torch.Tensor, options: Any) -> torch.Tensor:
    return x * options.dt + options.gain


class Scaled(nn.Module):
    """Computes with what is in its attributes."""

    def __init__(self, function: Callable[[Any, torch.Tensor], Any], options: Any = None) -> None:
        super().__init__()
        self.function = function
        self.options = options
        self.weight = nn.Parameter(torch.ones(7))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x * self.weight)


def follow(
    model: Callable[..., Any],
    change: Callable[[Any], tuple[Any, ...]],
    runtime: str | None = None,
    programs: int = 2,
    values: tuple[Any, ...] = VALUES,
) -> hostjit.CompiledFunction:
    """Compare a call for each value, whose arguments `change` returns, and count the programs."""
    compiled = hostjit.compile(model, runtime=runtime, fallback=False)
    for value in values:
        call = change(value)
        torch.testing.assert_close(compiled(*call), model(*call))
    assert len(compiled.specializations) == programs
    return compiled


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_argument_at_each_call(kind: str, runtime: str) -> None:
    x = torch.randn(7)
    follow(scale, lambda value: (x, KINDS[kind](value)), runtime)


@pytest.mark.parametrize("kind", ["dataclass", "slots", "plain", "namespace"])
def test_one_argument_that_changes(kind: str, runtime: str) -> None:
    x, options = torch.randn(7), KINDS[kind](0.0)

    def change(value: float) -> tuple[Any, ...]:
        options.dt = value
        return x, options

    follow(scale, change, runtime)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gradients", [False, True])
def test_another_object_in_an_attribute(kind: str, gradients: bool, runtime: str) -> None:
    model, x = Scaled(lambda self, x: scale(x, self.options)), torch.randn(7)

    def change(value: float) -> tuple[Any, ...]:
        model.options = KINDS[kind](value)
        return (x,)

    with torch.set_grad_enabled(gradients):
        compiled = follow(model, change, runtime)
        if gradients:
            found = torch.autograd.grad(compiled(x).sum(), model.weight)
            torch.testing.assert_close(found, torch.autograd.grad(model(x).sum(), model.weight))


def test_slots_of_one_object_in_an_attribute(runtime: str) -> None:
    model, x = Scaled(lambda self, x: scale(x, self.options), Slotted(1.0)), torch.randn(7)

    def change(value: float) -> tuple[Any, ...]:
        model.options.dt = value
        return (x,)

    follow(model, change, runtime)


def test_nested_objects(runtime: str) -> None:
    x = torch.randn(7)

    def function(x: torch.Tensor, options: Nested) -> torch.Tensor:
        return options.inner.scaled(x) * options.count

    follow(function, lambda value: (x, Nested(Options(value))), runtime)
    model = Scaled(lambda self, x: function(x, self.options), Nested(Options(1.0)))

    def change_inner(value: float) -> tuple[Any, ...]:
        model.options.inner = dataclasses.replace(model.options.inner, dt=value)
        return (x,)

    follow(model, change_inner, runtime)


@pytest.mark.parametrize(
    "function",
    [
        lambda self, x: x * self.options[0] + self.options[1] - self.options[2][0],
        lambda self, x: sum((x * value for value in self.options[:2]), x),
    ],
)
def test_elements_of_a_tuple(function: Any, runtime: str) -> None:
    model, x = Scaled(function), torch.randn(7)

    def change(value: float) -> tuple[Any, ...]:
        model.options = (value, 2.0, (value + 1, "fixed"))
        return (x,)

    follow(model, change, runtime)


def test_another_list_or_dict(runtime: str) -> None:
    x = torch.randn(7)
    model = Scaled(lambda self, x: x * self.options["gains"][0] + self.options["bias"])

    def change(value: float) -> tuple[Any, ...]:
        model.options = {"gains": [value, 1.0], "bias": value - 1}
        return (x,)

    follow(model, change, runtime)


gains = (0.5, 1.0)


def test_a_tuple_of_a_global_and_of_a_variable(runtime: str) -> None:
    x, pair = torch.randn(7), (0.0, 1)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * gains[0] + gains[1] + pair[0] * pair[1]

    def change(value: float) -> tuple[Any, ...]:
        global gains
        nonlocal pair
        gains, pair = (value, 2.0), (2 * value, 3)
        return (x,)

    follow(function, change, runtime)


def test_attributes_of_classes(runtime: str) -> None:
    class Base(nn.Module):
        dt = 0.5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part(x * self.dt) * Plain.factor + self.pair[1]

        def part(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    class Controller(Base):
        pair = (1.0, 2.0)

    model, x = Controller(), torch.randn(7)

    def change(value: float) -> tuple[Any, ...]:
        Base.dt, Plain.factor, Controller.pair = value, value + 1, (1.0, value)
        return (x,)

    compiled = follow(model, change, runtime)

    def compare() -> None:
        torch.testing.assert_close(compiled(x), model(x))

    Controller.dt = 11.0
    compare()
    model.dt = 12.0
    compare()
    del Controller.dt, model.dt
    compare()
    Base.part = lambda self, x: x - 1  # type: ignore[method-assign]
    compare()
    Base.dt = 13.0
    compare()
    Base.dt = property(lambda self: 14.0)  # type: ignore[assignment]
    compare()


def test_other_classes_fields_and_values_than_before() -> None:
    class Special(Options):
        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x - self.dt

    model, x = Scaled(lambda self, x: self.options.scaled(x)), torch.randn(7)
    compiled = hostjit.compile(model)

    def compare(options: Any) -> None:
        model.options = options
        torch.testing.assert_close(compiled(x), model(x), equal_nan=True)

    for value in VALUES[:4]:
        compare(Options(value))
    for options in (
        *(Special(1.0), Options(3), Options(True), Options(math.nan), Options(math.inf)),
        *(Options(0.5, 3.0), Options(-0.0), Options(1e300), Options(0.5, name="other")),
    ):
        compare(options)
    other = Options(0.75)
    other.scaled = lambda x: x * 100  # type: ignore[method-assign]
    compare(other)
    before = Options.scaled
    try:
        Options.scaled = lambda self, x: x * 7  # type: ignore[method-assign]
        compare(Options(0.5))
    finally:
        Options.scaled = before  # type: ignore[method-assign]
    compare(Options(0.25))
    model.options.dt = 9.0
    compare(model.options)
    del model.options.dt
    with pytest.raises(AttributeError):
        compiled(x)


def test_which_objects_are_one_decides() -> None:
    def function(x: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
        return x * (a.dt if a is b else b.dt - 1)

    compiled, x = hostjit.compile(function), torch.randn(7)
    for value in VALUES[:6]:
        a, b = Options(value), Options(value + 1)
        for call in ((x, a, b), (x, a, a), (x, b, a), (x, b, b)):
            torch.testing.assert_close(compiled(*call), function(*call))


def test_an_object_that_is_met_elsewhere() -> None:
    model = Scaled(lambda self, x: x * self.options.dt, Options(0.5))
    x = torch.randn(7)

    def function(x: torch.Tensor, options: Options) -> torch.Tensor:
        same = options is model.options
        return model(x) * options.dt + (1 if same else 2)

    compiled = hostjit.compile(function)
    for value in VALUES:
        options = Options(value)
        if value > 1:
            model.options = options
        torch.testing.assert_close(compiled(x, options), function(x, options))


class Joint:
    """Knows all others, as loggers and nodes of trees do."""

    def __init__(self, gain: float, parent: Joint | None, robot: dict[str, Joint]) -> None:
        self.gain, self.parent, self.robot = gain, parent, robot
        robot[f"joint {len(robot)}"] = self


def test_objects_that_know_each_other() -> None:
    robot: dict[str, Joint] = {}
    arm = Joint(0.5, Joint(1.0, None, robot), robot)
    hand, *_ = [Joint(0.0, arm, robot) for _ in range(5)]
    model = Scaled(lambda self, x: x * hand.parent.gain + hand.parent.parent.gain)  # type: ignore[union-attr]
    compiled, x = hostjit.compile(model), torch.randn(7)
    for number, value in enumerate(VALUES[:6]):
        if number % 2:
            arm.gain = value
        else:
            hand.parent = Joint(value, arm, robot)
        torch.testing.assert_close(compiled(x), model(x))


def test_lists_that_are_compared_by_identity() -> None:
    model = Scaled(lambda self, x: x * self.options[0] * (2 if self.options is self.last else 3))
    compiled, x = hostjit.compile(model), torch.randn(7)
    for value in VALUES[:6]:
        model.options, model.last = [value, 1.0], [value, 2.0]
        torch.testing.assert_close(compiled(x), model(x))
        model.last = model.options
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("kind", ["dataclass", "slots", "plain"])
def test_objects_that_a_call_changes(kind: str) -> None:
    def function(x: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
        a.dt += 1
        b.gain = a.dt * 2
        return x * b.dt

    compiled, x = hostjit.compile(function), torch.randn(7)
    for value in VALUES[:5]:
        states = [[KINDS[kind](value), KINDS[kind](value + 1)] for _ in range(2)]
        for first, second in ((0, 1), (0, 0), (1, 0)):
            results = [
                call(x, objects[first], objects[second])
                for call, objects in zip((compiled, function), states, strict=True)
            ]
            torch.testing.assert_close(*results)
            found = [[(o.dt, o.gain) for o in objects] for objects in states]
            assert found[0] == found[1]


def test_an_object_in_an_attribute_that_a_call_changes() -> None:
    def step(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.options.gain = self.options.dt + 1
        self.other.dt += 1
        return x * self.options.gain * self.other.dt

    models = [Scaled(step) for _ in range(2)]
    for model in models:
        model.other = Options(1.0)
    compiled, x = hostjit.compile(models[0]), torch.randn(7)
    for index, value in enumerate(VALUES[:8]):
        for model in models:
            model.options = model.other if index % 3 == 2 else Options(value)
        torch.testing.assert_close(compiled(x), models[1](x))
        assert repr(models[0].options) == repr(models[1].options)
        assert repr(models[0].other) == repr(models[1].other)


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    mask: torch.Tensor | None
    scale: float


@pytest.mark.parametrize("gradients", [False, True])
def test_tensors_in_arguments(gradients: bool, runtime: str) -> None:
    def function(batch: Batch) -> torch.Tensor:
        x = batch.x.sin() * batch.scale
        return x if batch.mask is None else torch.where(batch.mask, x, 0.0)

    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    with torch.set_grad_enabled(gradients):
        for index, value in enumerate(VALUES):
            x = torch.randn(3 + index, 5, requires_grad=gradients)
            batch = Batch(x, torch.rand(3 + index, 5) > 0.5, value)
            found, expected = compiled(batch), function(batch)
            torch.testing.assert_close(found, expected)
            if gradients:
                torch.testing.assert_close(
                    torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x)
                )
        assert len(compiled.specializations) == 2
        without = Batch(torch.randn(4, 5), None, 3.0)
        torch.testing.assert_close(compiled(without), function(without))


@pytest.mark.parametrize("kind", KINDS)
def test_objects_that_are_returned_are_those_of_the_call(kind: str) -> None:
    model = Scaled(lambda self, x: (x * self.options.dt, self.options, [self.options]))

    def function(x: torch.Tensor, options: Any) -> Any:
        return x * options.dt, options, [options]

    x = torch.randn(7)
    compiled, compiled_model = hostjit.compile(function), hostjit.compile(model)
    for value in VALUES[:6]:
        model.options = KINDS[kind](value)
        for found in (compiled(x, model.options), compiled_model(x)):
            torch.testing.assert_close(found[0], x * value)
            assert found[1] is model.options and found[2][0] is model.options


def test_a_configuration_that_several_modules_share() -> None:
    class Block(nn.Module):
        def __init__(self, options: Options) -> None:
            super().__init__()
            self.options = options

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.options.scaled(x)

    options = Options(0.5)
    model = nn.Sequential(Block(options), Block(options))
    compiled, x = hostjit.compile(model), torch.randn(7)
    for index, value in enumerate(VALUES[:8]):
        options = Options(value)
        model[0].options = options
        if index != 5:
            model[1].options = options
        torch.testing.assert_close(compiled(x), model(x))


def test_tensors_in_tuples_of_attributes() -> None:
    model = Scaled(lambda self, x: x * self.options[0] + self.options[1])
    compiled, x = hostjit.compile(model), torch.randn(7)
    for value in VALUES[:6]:
        model.options = (torch.full((7,), value), value)
        torch.testing.assert_close(compiled(x), model(x))


class Actor:
    """An object with a state of its own, of which there may be several."""

    def __init__(self) -> None:
        self.model = nn.Linear(7, 7)
        self.gain = 0.5
        self.history: list[float] = []

    def act(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x) * self.gain


def test_fields_that_the_code_does_not_read() -> None:
    model, x = Scaled(lambda self, x: x * self.options.dt), torch.randn(7)

    def change(value: float) -> tuple[Any, ...]:
        model.options = Options(value, gain=value + 1)
        return (x,)

    follow(model, change)
    other = Scaled(lambda self, x: x * self.options.dt)

    def rename(value: float) -> tuple[Any, ...]:
        other.options = Options(value, name=str(value))
        return (x,)

    follow(other, rename, programs=3)
    actors = [Actor(), Actor()]
    compiled = hostjit.compile(Actor.act)
    for value in VALUES:
        for actor in actors:
            actor.history.append(value)
            torch.testing.assert_close(compiled(actor, x), actor.act(x))
    assert len(compiled.specializations) == 2


def test_a_call_that_raises_closes_nothing() -> None:
    model, x = Scaled(lambda self, x: scale(x, self.options)), torch.randn(7)

    def function(x: torch.Tensor, options: Options) -> torch.Tensor:
        if options.name == "wrong":
            raise ValueError(options.name)
        return model(x) * options.dt

    compiled = hostjit.compile(function)
    for index, value in enumerate(VALUES):
        model.options = Options(value + 1)
        torch.testing.assert_close(compiled(x, Options(value)), function(x, Options(value)))
        if index in (1, 4):
            with pytest.raises(ValueError, match="wrong"):
                compiled(x, Options(value, name="wrong"))
    programs = [found for found in compiled.specializations if found.program is not None]
    assert len(programs) == 2
