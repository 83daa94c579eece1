# SPDX-License-Identifier: Apache-2.0
"""What is compiled goes away with the last reference to it, and takes along what it held."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.guards import CheckFunctionManager
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import hostjit


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).tanh()


class Remembering(Plain):
    def forward(self, x: Tensor) -> Tensor:
        self.last = super().forward(x)
        return self.last + 1


class Slots:
    __slots__ = ("value",)


SLOTS = Slots()
SLOTS.value = 2.0


class Unwatchable(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * SLOTS.value


class Other:
    """Returned as an object that only Python code can make."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


class Wrapping(Plain):
    def forward(self, x: Tensor) -> Tensor:
        self.other = Other(super().forward(x))
        return self.other.value


def directly(model: nn.Module) -> Any:
    compiled = hostjit.compile(model)
    with torch.no_grad():
        for rows in (1, 2):
            compiled(torch.ones(rows, 3))
    return compiled


def by_dynamo(model: nn.Module) -> Any:
    compiled = torch.compile(model, backend="hostjit")
    with torch.no_grad():
        compiled(torch.ones(2, 3))
    return compiled


def trained(model: nn.Module) -> Any:
    compiled = torch.compile(model, backend="hostjit")
    compiled(torch.ones(2, 3)).sum().backward()
    return compiled


@pytest.mark.parametrize("kind", [Plain, Remembering, Unwatchable, Wrapping])
@pytest.mark.parametrize("use", [directly, by_dynamo, trained])
def test_nothing_is_kept(kind: type[Plain], use: Callable[[nn.Module], Any]) -> None:
    torch.compiler.reset()
    model = kind()
    compiled = use(model)
    gone = [weakref.ref(model), weakref.ref(model.linear.weight), weakref.ref(compiled)]
    names = {name for name in globals() if name.startswith("__compiled_fn")}
    del model, compiled
    if use is not directly:
        torch.compiler.reset()  # Dynamo keeps the last code of a function that it has seen
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3
    assert use is not directly or not names & set(globals())


def add(x: Tensor, others: dict[str, Tensor]) -> Tensor:
    return x * 2 + others["y"]


def add_and_write(x: Tensor, others: dict[str, Tensor]) -> Tensor:
    others["z"] = x.mul_(2)
    return x + others["y"]


@pytest.mark.parametrize("function", [add, add_and_write])
@pytest.mark.parametrize(
    "compile", [hostjit.compile, lambda function: torch.compile(function, backend="hostjit")]
)
def test_arguments_are_not_kept(function: Any, compile: Any) -> None:
    compiled = compile(function)
    x, y = torch.ones(3), torch.ones(3)
    gone = [weakref.ref(x), weakref.ref(y), weakref.ref(compiled(x, {"y": y}))]
    del x, y
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3


def raises(x: Tensor) -> Tensor:
    raise ValueError(str(x.shape))


def has_no_such_attribute(x: Tensor) -> Any:
    return x.nonexistent  # type: ignore[attr-defined]


def does_not_fit(x: Tensor) -> Tensor:
    return x @ x


def raises_in_captures_alone(x: Tensor) -> Tensor:
    return x * 2 if not torch.compiler.is_compiling() else raises(x)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize(
    "function", [raises, has_no_such_attribute, does_not_fit, raises_in_captures_alone]
)
@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
def test_arguments_of_calls_that_raise_are_not_kept(function: Any, compile: Any) -> None:
    compiled = compile(function)
    alive = []
    for size in range(24):
        x = torch.ones(2, 3 + size)
        alive.append(weakref.ref(x))
        with contextlib.suppress(ValueError, AttributeError, RuntimeError):
            compiled(x)
    del x
    gc.collect()
    assert not any(reference() is not None for reference in alive)


class Kept:
    value = 3.0


@pytest.mark.filterwarnings("ignore:hostjit")
def test_what_a_weak_reference_refers_to_is_not_kept() -> None:
    kept = [Kept()]
    reference = weakref.ref(kept[0])

    def function(x: Tensor) -> Tensor:
        found = reference()
        return x * (7.0 if found is None else found.value)

    compiled = hostjit.compile(function)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    kept.clear()
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 7.0))


def test_what_is_forgotten_is_released() -> None:
    model = Remembering()
    compiled = directly(model)
    kept = weakref.ref(compiled.specializations[0].program)
    compiled.forget()
    assert not compiled.specializations
    compiled.owner._latest = None
    gc.collect()
    assert kept() is None


class Model:
    def __init__(self) -> None:
        self.linear = nn.Linear(3, 3)

    def step(self, x: Tensor) -> Tensor:
        self.linear.zero_grad()
        loss = self.linear(x).sum()
        loss.backward()
        return loss.detach()

    def read(self, x: Tensor) -> Tensor:
        return self.linear(x) * float(x[0, 0])

    def infer(self, x: Tensor) -> Tensor:
        return self.linear(x)


@pytest.mark.parametrize("name", ["step", "read", "infer"])
@pytest.mark.parametrize("release", ["function", "recordings", "recordings of the object"])
def test_recordings_release_what_they_met(name: str, release: str) -> None:
    model = Model()
    function = getattr(Model, name)
    captured = hostjit.capture(function)
    for rows in (2, 2, 2, 3, 3):
        captured(model, torch.ones(rows, 3))
    assert len(captured.specializations) >= 2
    gone = [weakref.ref(model), weakref.ref(model.linear.weight)]
    if release == "function":
        del captured
    elif release == "recordings":
        captured.reset()
    else:
        captured.of(model).reset()
    del model
    gc.collect()
    assert [reference() for reference in gone] == [None] * 2


def test_what_is_known_of_sizes_goes_away_too() -> None:
    def environments() -> int:
        gc.collect()
        return sum(type(found) is ShapeEnv for found in gc.get_objects())

    def compiled_for_any_size() -> None:
        fast = hostjit.compile(lambda x, y: (x * 2 + y).relu().sum(-1))
        for size in (2, 3, 4):
            fast(torch.ones(size, 3), torch.ones(size, 3))

    compiled_for_any_size()
    before = environments()
    for _ in range(5):
        compiled_for_any_size()
    assert environments() <= before + 1


def whole(x: Tensor) -> Tensor:
    return x * 2


def in_parts(x: Tensor) -> Tensor:
    return whole(x) * float(x.sum()) + 1


@pytest.mark.filterwarnings("ignore:hostjit.*runs in parts")
@pytest.mark.parametrize("make", [lambda: whole, lambda: in_parts, lambda: nn.Linear(3, 3)])
def test_guards_go_away_with_what_is_compiled(make: Callable[[], Any]) -> None:
    def managers() -> int:
        gc.collect()
        return sum(type(found) is CheckFunctionManager for found in gc.get_objects())

    before = managers()
    for _ in range(3):
        hostjit.compile(make())(torch.ones(2, 3))
    assert managers() == before
