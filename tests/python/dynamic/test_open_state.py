# SPDX-License-Identifier: Apache-2.0
"""Numbers outside of the arguments that differ from call to call: one program for all of them."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import hostjit

VALUES = (0.1, 0.25, -0.3, 7.5, 1.0, 0.0)

rate = 0.5
settings = {"rate": 0.5}


def follow(
    function: Callable[..., Any],
    change: Callable[[Any], None],
    values: tuple[Any, ...],
    runtime: str | None,
    programs: int = 2,
    inputs: tuple[torch.Tensor, ...] | None = None,
) -> hostjit.CompiledFunction:
    """Compare a call for each value that `change` puts somewhere, and count the programs."""
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    inputs = (torch.randn(7),) if inputs is None else inputs
    for value in values:
        change(value)
        torch.testing.assert_close(compiled(*inputs), function(*inputs))
    assert len(compiled.specializations) == programs
    return compiled


class Integrator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dt = 0.5
        self.inner = nn.Linear(7, 7)
        self.inner.scale = 0.5
        self.options = {"gain": 0.5}
        self.power = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.dt * self.inner(x) * self.inner.scale).mul(self.options["gain"])


def test_an_attribute_of_a_module(runtime: str) -> None:
    model = Integrator()
    compiled = follow(model, lambda value: setattr(model, "dt", value), VALUES, runtime)
    program = compiled.specializations[0].program
    assert program is not None and program.num_rows == 1


@torch.enable_grad()
def test_an_attribute_with_gradients(runtime: str) -> None:
    model = Integrator()
    compiled = hostjit.compile(model, runtime=runtime, fallback=False)
    x = torch.randn(3, 7)
    for model.dt in VALUES:
        gradients = []
        for call in (compiled, model):
            model.zero_grad()
            call(x).sum().backward()
            gradients.append([parameter.grad for parameter in model.parameters()])
        torch.testing.assert_close(*gradients)
    assert len(compiled.specializations) == 2


def test_an_attribute_of_an_inner_module_and_an_item_of_a_dict(runtime: str) -> None:
    model = Integrator()

    def change(value: float) -> None:
        model.inner.scale = value
        model.options["gain"] = 2 * value

    follow(model, change, VALUES, runtime)


def test_one_attribute_after_the_other() -> None:
    model = Integrator()

    def change(value: tuple[float, float]) -> None:
        model.dt, model.inner.scale = value

    values = ((0.5, 0.5), (0.25, 0.5), (0.125, 0.5), (0.125, 0.25), (2.0, 3.0), (4.0, 5.0))
    follow(model, change, values, None, programs=3)


def test_an_int_attribute(runtime: str) -> None:
    class Scaled(nn.Module):
        count = 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.count + self.count

    model = Scaled()
    follow(model, lambda value: setattr(model, "count", value), (5, 7, -3, 100), runtime)


def test_an_int_that_the_program_depends_on() -> None:
    model = Integrator()

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(model.power):
            x = x * 2
        return x

    follow(function, lambda value: setattr(model, "power", value), (2, 3, 4, 3), None, programs=3)


def test_a_global(runtime: str) -> None:
    def change(value: float) -> None:
        global rate
        rate = value

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * rate

    follow(function, change, VALUES, runtime)


def test_an_item_of_a_global_dict(runtime: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * settings["rate"]

    follow(function, lambda value: settings.update(rate=value), VALUES, runtime)


def test_a_variable_of_an_enclosing_function(runtime: str) -> None:
    dt = 0.5

    def change(value: float) -> None:
        nonlocal dt
        dt = value

    def function(x: torch.Tensor) -> torch.Tensor:
        return x - dt

    follow(function, change, VALUES, runtime)


def test_attributes_of_plain_objects(runtime: str) -> None:
    @dataclasses.dataclass
    class Options:
        dt: float
        gain: float

    options, space = Options(0.5, 2.0), types.SimpleNamespace(bias=0.0)

    def change(value: float) -> None:
        options.dt = space.bias = value

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * options.dt * options.gain + space.bias

    follow(function, change, VALUES, runtime)


def test_an_attribute_of_an_argument(runtime: str) -> None:
    options = types.SimpleNamespace(dt=0.5)

    def function(x: torch.Tensor, options: Any) -> torch.Tensor:
        return x * options.dt

    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    x = torch.randn(7)
    for options.dt in VALUES:
        torch.testing.assert_close(compiled(x, options), x * options.dt, rtol=0, atol=0)
    assert len(compiled.specializations) == 2


def test_an_attribute_and_an_argument() -> None:
    model = Integrator()

    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return x * t + model.dt

    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(7)
    for model.dt in VALUES:
        for t in VALUES:
            torch.testing.assert_close(compiled(x, t), x * t + model.dt, rtol=0, atol=0)
    assert len(compiled.specializations) == 3


def test_a_decision_on_an_attribute_bounds_it() -> None:
    model = Integrator()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * model.dt if model.dt > 0.5 else x + model.dt

    values = (0.1, 0.2, 0.3, 0.9, 0.8, 0.4, 7.0)
    follow(function, lambda value: setattr(model, "dt", value), values, None, programs=3)


def test_values_of_other_kinds_have_programs_of_their_own() -> None:
    model = Integrator()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * model.dt

    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(7)
    values = (0.5, 0.25, 0.125, float("inf"), 3, True, 2.5, float("nan"), torch.tensor(3.0), 0.75)
    for model.dt in values:
        expected = x * model.dt
        torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0, equal_nan=True)
    del model.dt
    with pytest.raises(AttributeError, match="dt"):
        compiled(x)
    model.dt = 0.375
    torch.testing.assert_close(compiled(x), x * 0.375, rtol=0, atol=0)


def test_another_object_in_the_place_of_the_holder() -> None:
    model = Integrator()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * model.inner.scale * model.options["gain"]

    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(7)

    def compare() -> None:
        expected = x * model.inner.scale * model.options["gain"]
        torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0)

    for value in VALUES:
        model.inner.scale = value
        compare()
    model.inner = nn.Linear(7, 7)
    model.inner.scale = 11.0
    compare()
    model.inner.scale = 12.0
    compare()
    for value in VALUES:
        model.options = {"gain": value}
        compare()
    vars(model.inner)["scale"] = 13.0
    compare()
    model.inner.__dict__ = {**vars(model.inner), "scale": 14.0}
    compare()
    model.inner.scale = 15.0
    compare()


def test_a_property_in_the_place_of_an_attribute() -> None:
    class Options:
        def __init__(self) -> None:
            self.dt = 0.5

    options = Options()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * options.dt

    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(7)
    for options.dt in (0.5, 0.25, 0.125):
        torch.testing.assert_close(compiled(x), x * options.dt, rtol=0, atol=0)
    Options.dt = property(lambda self: 3.0)  # type: ignore[assignment]
    torch.testing.assert_close(compiled(x), x * 3.0, rtol=0, atol=0)


def test_a_counter_that_the_call_itself_moves() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1.0
            return x * self.calls

    counting, eager = Counting(), Counting()
    compiled = hostjit.compile(counting)
    x = torch.randn(7)
    for _ in range(8):
        torch.testing.assert_close(compiled(x), eager(x), rtol=0, atol=0)
    assert counting.calls == eager.calls == 8.0


def test_dynamic_false_compiles_for_each_value() -> None:
    model = Integrator()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * model.dt

    compiled = hostjit.compile(function, dynamic=False, fallback=False)
    x = torch.randn(7)
    for model.dt in VALUES[:4]:
        torch.testing.assert_close(compiled(x), x * model.dt, rtol=0, atol=0)
    assert len(compiled.specializations) == 4
