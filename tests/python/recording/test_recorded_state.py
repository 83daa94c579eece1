# SPDX-License-Identifier: Apache-2.0
"""Python state that a recorded call reads is watched, and state that it changes is not replayed."""

from __future__ import annotations

import dataclasses
import gc
import os
import random
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from no_warnings import no_warnings
from recorded_beside_eager import check
from torch import nn
from torch.testing import assert_close

import hostjit
from hostjit.recording.reach.state import State

randn = torch.randn
SCALE = 2.0
FACTORS = [2.0, 3.0]
TABLE = {"scale": 2.0, "more": {"deep": 1.0}}
NAMES = {"add"}
ARRAY = numpy.ones(3)


def helper(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def other_helper(x: torch.Tensor) -> torch.Tensor:
    return x - 1


def with_default(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return x * scale


class Slotted:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 2.0


class Configured:
    factor = 2.0

    def __init__(self) -> None:
        self.offset = 0.0
        self.parts = [1.0]

    @property
    def total(self) -> float:
        return self.factor + self.offset + sum(self.parts)

    def named(self, name: str) -> float:
        return float(getattr(self, f"off{name}"))


SLOTTED = Slotted()
CONFIGURED = Configured()


def _set_global(name: str, value: Any) -> Callable[[], None]:
    return lambda: globals().__setitem__(name, value)


_READS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[], Any], Callable[[], Any]]] = {
    "global": (lambda x: x * SCALE, _set_global("SCALE", 5.0), _set_global("SCALE", 2.0)),
    "function": (
        lambda x: helper(x),
        _set_global("helper", other_helper),
        _set_global("helper", helper),
    ),
    "default": (
        lambda x: with_default(x),
        lambda: setattr(with_default, "__defaults__", (3.0,)),
        lambda: setattr(with_default, "__defaults__", (2.0,)),
    ),
    "list": (
        lambda x: x * FACTORS[0] if len(FACTORS) == 2 else x,
        lambda: FACTORS.append(1.0),
        lambda: FACTORS.pop(),
    ),
    "dict": (
        lambda x: x * TABLE["scale"],
        lambda: TABLE.update(scale=4.0),
        lambda: TABLE.update(scale=2.0),
    ),
    "nested dict": (
        lambda x: x * TABLE["more"]["deep"],
        lambda: TABLE["more"].update(deep=4.0),
        lambda: TABLE["more"].update(deep=1.0),
    ),
    "set": (
        lambda x: x + 1 if "add" in NAMES else x,
        lambda: NAMES.discard("add"),
        lambda: NAMES.add("add"),
    ),
    "slots": (
        lambda x: x * SLOTTED.scale,
        lambda: setattr(SLOTTED, "scale", 3.0),
        lambda: setattr(SLOTTED, "scale", 2.0),
    ),
    "array": (
        lambda x: x * float(ARRAY[0]),
        lambda: ARRAY.fill(4.0),
        lambda: ARRAY.fill(1.0),
    ),
    "class": (
        lambda x: x * CONFIGURED.total,
        lambda: setattr(Configured, "factor", 7.0),
        lambda: setattr(Configured, "factor", 2.0),
    ),
    "attribute": (
        lambda x: x * CONFIGURED.total,
        lambda: setattr(CONFIGURED, "offset", 7.0),
        lambda: setattr(CONFIGURED, "offset", 0.0),
    ),
    "list of an attribute": (
        lambda x: x * CONFIGURED.total,
        lambda: CONFIGURED.parts.append(9.0),
        lambda: CONFIGURED.parts.pop(),
    ),
    "name made by code": (
        lambda x: x * (CONFIGURED.named("set") + 1),
        lambda: setattr(CONFIGURED, "offset", 7.0),
        lambda: setattr(CONFIGURED, "offset", 0.0),
    ),
    "environment": (
        lambda x: x * float(os.environ.get("HOSTJIT_TEST_SCALE", "2")),
        lambda: os.environ.update(HOSTJIT_TEST_SCALE="3"),
        lambda: os.environ.pop("HOSTJIT_TEST_SCALE"),
    ),
    "hook": (
        lambda x: torch.relu(x),
        lambda: setattr(torch, "relu", torch.tanh),
        lambda: setattr(torch, "relu", _relu),
    ),
}
_relu = torch.relu


@pytest.mark.parametrize("name", list(_READS))
def test_state_is_watched(name: str) -> None:
    function, change, restore = _READS[name]
    fast = hostjit.capture(function)
    try:
        for number in range(9):
            if number == 4:
                change()
            if number == 7:
                restore()
            x = torch.ones(3) + number
            assert_close(fast(x), function(x))
    finally:
        if number < 7:
            restore()
    assert fast.captured is not None
    assert len(fast.specializations) in (2, 3)


def test_variables_of_closures() -> None:
    scale = 2.0

    def change(value: float) -> None:
        nonlocal scale
        scale = value

    fast = hostjit.capture(lambda x: x * scale)
    for number in range(8):
        if number == 4:
            change(3.0)
        x = randn(3)
        assert_close(fast(x), x * scale)


def test_objects_among_arguments() -> None:
    @dataclasses.dataclass
    class Options:
        scale: float
        layer: nn.Module

    options = Options(2.0, nn.Linear(3, 3))
    fast = hostjit.capture(lambda x, options: options.layer(x) * options.scale)
    with torch.no_grad():
        for number in range(9):
            if number == 3:
                options.scale = 4.0
            if number == 6:
                options.layer = nn.Linear(3, 3)
            x = randn(2, 3)
            assert_close(fast(x, options), options.layer(x) * options.scale)


def _appends(x: torch.Tensor, seen: list[int]) -> torch.Tensor:
    seen.append(len(seen))
    return x * len(seen)


def test_arguments_that_are_changed() -> None:
    fast = hostjit.capture(_appends)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            x, seen = randn(3), [1, 2]
            assert_close(fast(x, seen), x * 3)
            assert len(seen) == 3
    assert fast.captured is None


def test_what_is_set_up_once() -> None:
    class Lazy:
        table: Any = None

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            if self.table is None:
                self.table = torch.arange(3.0)
            return x + self.table

    for warmup in (0, 1):
        fast = hostjit.capture(Lazy(), warmup=warmup)
        for _ in range(5):
            x = randn(3)
            assert_close(fast(x), x + torch.arange(3.0))
        assert fast.captured is not None


_HIDDEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "clock": lambda x: x * 0 + time.perf_counter(),
    "random": lambda x: x * 0 + random.random(),
    "generator": lambda x: x * 0 + _generator.random(),
    "numpy": lambda x: x * 0 + float(numpy.random.rand()),
    "file": lambda x: x * 0 + len(Path(__file__).read_text()),
    "thread": lambda x: threading.Thread(target=lambda: x.add_(1)).start() or x,
    "storage": lambda x: x + x.storage_offset(),
    "address": lambda x: x * 0 + x.data_ptr() % 2,
    "data": lambda x: setattr(x, "data", x * 2) or x * 1,
    "iterator": lambda x: x * next(_counter),
}
_counter = iter(range(1000))
_generator = numpy.random.default_rng(0)


@pytest.mark.parametrize("name", list(_HIDDEN))
def test_what_no_replay_repeats(name: str) -> None:
    fast = hostjit.capture(_HIDDEN[name])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _ = [fast(randn(3)) for _ in range(5)]
    assert fast.captured is None
    assert sum("runs eagerly" in str(warning.message) for warning in said) == 1


def test_an_argument_that_is_reached_in_another_way_too() -> None:
    state = torch.ones(3)

    def add(x: torch.Tensor) -> torch.Tensor:
        return x + state * 2

    def write(x: torch.Tensor) -> torch.Tensor:
        return state.mul_(0.5).sum() + x.sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for first in (0, 1):
            for function in (add, write):
                fast = hostjit.capture(function)
                for number in range(8):
                    state.fill_(number)
                    x = (state, randn(3), state[:2], randn(2))[(number + first) % 2 :: 2][0]
                    expected, after = function(x), state.clone()
                    state.fill_(number)
                    assert_close(fast(x), expected)
                    assert_close(state, after)


def test_a_gradient_among_the_arguments() -> None:
    weight = nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    fast = hostjit.capture(lambda x: x * 2 + weight.grad)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(8):
            x = weight.grad if number % 2 else randn(3)
            assert_close(fast(x), x * 2 + weight.grad)


def test_results_of_inference_mode() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return x * 2

    fast = hostjit.capture(call)
    with no_warnings():
        assert all(fast(randn(3)).is_inference() for _ in range(4))
    assert fast.captured


def test_results_of_two_modes_run_eagerly() -> None:
    def call(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode():
            y = x * 2
        return y, x + 1

    fast = hostjit.capture(call)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(4):
            assert [y.is_inference() for y in fast(randn(3))] == [True, False]
    assert "a tensor of another inference mode" in str(said[0].message)


@pytest.mark.parametrize("inside", [True, False])
def test_values_read_in_inference_mode(inside: bool) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(inside or torch.is_inference_mode_enabled()):
            if x.sum().item() > 0 and (x > -9).all():
                return x.reshape(-1) * 2
            return x[:1] - 1

    fast = hostjit.capture(call)
    with warnings.catch_warnings(), torch.inference_mode(not inside):
        warnings.simplefilter("error")
        for value in (1.0, 1.0, 1.0, -1.0, -1.0, 1.0, -1.0, -10.0, -10.0):
            x = torch.full((2, 2), value)
            expected = call(x)
            found = fast(x)
            assert torch.equal(found, expected) and found.is_inference()
    assert fast.captured


def test_tensors_made_past_the_dispatcher() -> None:
    array = numpy.ones(3, dtype=numpy.float32)
    fast = hostjit.capture(lambda x: x + torch.from_numpy(array * 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(6):
            array[:] = number
            x = randn(3)
            assert_close(fast(x), x + 2 * number)


def test_constants_of_python_values_are_new_at_each_call() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        weights = torch.tensor([1.0, 2.0, 3.0])
        weights.add_(x)
        return weights

    fast = hostjit.capture(call)
    results = [fast(torch.full((3,), float(i))) for i in range(5)]
    for i, result in enumerate(results):
        assert_close(result, torch.tensor([1.0, 2.0, 3.0]) + i)


collections_seen = 0


def test_garbage_collections_are_none_of_the_call() -> None:
    def note(phase: str, info: dict[str, int]) -> None:
        global collections_seen
        collections_seen += 1

    def make(x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            loop: list[Any] = []
            loop.append(loop)
        return x + 1

    before = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(5)
    try:
        check(make, [(torch.randn(3),) for _ in range(4)])
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)
    assert collections_seen > 0 and gc.isenabled()


class Annotated(nn.Module):
    limits: dict[str, int | None]
    call: Callable[..., Any]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(type(self).__annotations__)


def test_annotations_need_no_python_code_at_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Annotated()
    fast = hostjit.capture(model)
    x = torch.randn(3)
    compared: list[Any] = []
    for step in range(5):
        if step == 3:
            monkeypatch.setattr(State, "holds", lambda state: compared.append(state))
        assert_close(fast(x), x * 2)
    assert not compared
    monkeypatch.undo()
    Annotated.__annotations__["more"] = list[int]
    assert_close(fast(x), x * 3)


def test_tensors_that_calls_swap() -> None:
    """Then a name of code has another tensor each time, in the same object."""
    a, b = torch.ones(3), torch.zeros(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + a
        torch.utils.swap_tensors(a, b)
        return y * 2 + b

    recorded = hostjit.capture(function)
    recorded(torch.ones(3))
    with pytest.warns(UserWarning, match="swaps tensors"):
        recorded(torch.ones(3))
    found = [recorded(torch.ones(3))[0].item() for _ in range(4)]
    assert found == [5.0, 2.0] * 2
