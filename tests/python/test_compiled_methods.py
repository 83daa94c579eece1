# SPDX-License-Identifier: Apache-2.0
"""Methods of compiled or captured functions, called in functions that are themselves compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

ENTRIES: dict[str, Callable[[Any], Any]] = {
    "compile": functools.partial(hostjit.compile, fallback=False),
    "capture": functools.partial(hostjit.capture, fallback=False),
    "torch.compile": functools.partial(torch.compile, backend="hostjit", fullgraph=True),
}
DECORATORS = {"compile": hostjit.compile, "capture": hostjit.capture}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    with torch.no_grad():
        yield


def _kind(decorate: Callable[[Any], Any], base: type) -> type[Any]:
    class Model(base):  # type: ignore[misc]
        offset = 1.0

        def __init__(self, factor: float) -> None:
            super().__init__()
            self.weight = torch.full((3,), factor)

        @decorate
        def step(self, x: Tensor, k: int = 1) -> Tensor:
            return x * self.weight * k + self.offset

    return Model


def called(model: Any, x: Tensor) -> Tensor:
    return model.step(x) + 1


def held(model: Any, x: Tensor) -> Tensor:
    step = model.step
    return step(x, k=1) + 1


def found(model: Any, x: Tensor) -> Tensor:
    return getattr(model, "step")(x) + 1  # noqa: B009


def mapped(model: Any, x: Tensor) -> Tensor:
    return next(iter(map(model.step, [x]))) + 1


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("decorator", DECORATORS)
@pytest.mark.parametrize("base", [object, torch.nn.Module])
@pytest.mark.parametrize("use", [called, held, found, mapped])
def test_a_method_in_a_compiled_function(
    entry: str, decorator: str, base: type, use: Callable[..., Tensor]
) -> None:
    fast, kind = ENTRIES[entry](use), _kind(DECORATORS[decorator], base)
    models = [kind(2.0), kind(3.0)]
    for _ in range(3):
        for model, factor in zip(models, (2.0, 3.0), strict=True):
            x = torch.randn(3)
            assert_close(fast(model, x), x * factor + 2)
    models[0].weight = torch.full((3,), 5.0)
    for _ in range(3):
        assert_close(fast(models[0], x), x * 5 + 2)
    kind.offset = 2.0
    for _ in range(3):
        assert_close(fast(models[0], x), x * 5 + 3)
    models[1].step = lambda x, k=1: x  # hides that of the class
    for _ in range(3):
        assert_close(fast(models[1], x), x + 1)
        assert_close(fast(models[0], x), x * 5 + 3)
    kind.step = DECORATORS[decorator](lambda self, x, k=1: x * 7)
    for _ in range(3):
        assert_close(fast(models[0], x), x * 7 + 1)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_method_as_a_value(entry: str, decorator: str) -> None:
    kind = _kind(DECORATORS[decorator], torch.nn.Module)
    method, other = kind(2.0).step, kind(3.0).step
    by_closure = ENTRIES[entry](lambda x: method(x) + 1)
    by_argument = ENTRIES[entry](lambda f, x: f(x) + 1)
    itself = ENTRIES[entry](method) if entry != "torch.compile" else method
    for _ in range(3):
        x = torch.randn(3)
        assert_close(by_closure(x), x * 2 + 2)
        assert_close(by_argument(method, x), x * 2 + 2)
        assert_close(by_argument(other, x), x * 3 + 2)
        assert_close(itself(x), x * 2 + 1)
    method.__self__.weight.add_(1)
    assert_close(by_closure(x), x * 3 + 2)
    method.__self__.weight = torch.zeros(3)
    for _ in range(3):
        assert_close(by_closure(x), torch.full((3,), 2.0))


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_method_of_an_object_that_is_made_inside(entry: str) -> None:
    class Scaled:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @hostjit.compile
        def step(self, x: Tensor) -> Tensor:
            return x * self.factor

    fast = ENTRIES[entry](lambda x: Scaled(4.0).step(x))
    for _ in range(3):
        x = torch.randn(3)
        assert_close(fast(x), x * 4)


def test_gradients_through_a_method() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        @hostjit.compile
        def step(self, x: Tensor) -> Tensor:
            return (x * self.weight).sum()

    model, x = Model(), torch.randn(3)
    with torch.enable_grad():
        for entry in ("compile", "torch.compile"):
            ENTRIES[entry](lambda model, x: model.step(x) * 2)(model, x).backward()
    assert_close(model.weight.grad, x * 4)


def _heirs(decorate: Callable[[Any], Any], decorate_last: Callable[[Any], Any]) -> type[Any]:
    class Middle(_kind(decorate, torch.nn.Module)):  # type: ignore[misc]
        @decorate
        def step(self, x: Tensor, k: int = 1) -> Tensor:
            return super().step(x * 2, k=k) + 1

    class Last(Middle):
        scale = 3.0

        @decorate_last
        def step(self, x: Tensor, k: int = 1) -> Tensor:
            before = super().step
            return before(x, k) * self.scale + super().step(x)

    return Last


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_method_of_a_base_class(entry: str, decorator: str) -> None:
    kind = _heirs(DECORATORS[decorator], lambda function: function)
    model, eager = kind(2.0), _heirs(lambda function: function, lambda function: function)(2.0)
    fast = ENTRIES[entry](lambda x: model.step(x, k=2))
    for number in range(6):
        if number == 3:
            model.weight, eager.weight = (torch.full((3,), 5.0) for _ in "ab")
        if number == 4:
            model.scale = eager.scale = 4.0
        x = torch.randn(3)
        assert_close(fast(x), eager.step(x, k=2))


def test_a_compiled_method_that_extends_one() -> None:
    def compiled(function: Any) -> Any:
        return hostjit.compile(function, fallback=False)

    kind = _heirs(compiled, compiled)
    eager = _heirs(lambda function: function, lambda function: function)
    for factor in (2.0, 3.0, 2.0):
        x = torch.randn(3)
        assert_close(kind(factor).step(x), eager(factor).step(x))
    inside = hostjit.compile(lambda x: kind(2.0).step(x), fallback=False)
    x = torch.randn(3)
    for _ in range(2):
        assert_close(inside(x), eager(2.0).step(x))


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("decorate", [*DECORATORS.values(), lambda function: function])
def test_a_method_of_a_base_class_that_is_replaced(
    entry: str, decorate: Callable[[Any], Any]
) -> None:
    base = _kind(hostjit.compile, torch.nn.Module)

    class Model(base):  # type: ignore[misc]
        def step(self, x: Tensor, k: int = 1) -> Tensor:
            return super().step(x) + 1

    model = Model(2.0)
    fast = ENTRIES[entry](model.step)
    x = torch.randn(3)
    for _ in range(3):
        assert_close(fast(x), x * 2 + 2)
    base.step = decorate(lambda self, x: x * 10)
    for _ in range(3):
        assert_close(fast(x), x * 10 + 1)
