# SPDX-License-Identifier: Apache-2.0
"""Captured methods: each object has recordings of its own, and a method that tells of them."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import pickle
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.usefixtures("each_runtime")


def randn(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


def _agrees(
    fast: Callable[..., Any], eager: Callable[..., Any], *args: Any, calls: int = 4
) -> None:
    for _ in range(calls):
        x = randn(3)
        assert_close(fast(x, *args), eager(x, *args))


class Scaled:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    @hostjit.capture
    def scale(self, x: torch.Tensor, k: int = 1) -> torch.Tensor:
        """Scales."""
        return x * self.factor * k

    @hostjit.compile
    def shift(self, x: torch.Tensor) -> torch.Tensor:
        """Shifts."""
        return x + self.factor


@pytest.fixture(name="pair")
def _pair() -> tuple[Scaled, Scaled]:
    Scaled.scale.reset()
    first, second = Scaled(2.0), Scaled(3.0)
    for k in (1, 5):
        for _ in range(3):
            _agrees(first.scale, lambda x: x * 2, calls=1)
            _agrees(second.scale, lambda x, k: x * 3 * k, k, calls=1)
    return first, second


def test_methods_have_recordings_for_each_instance(pair: tuple[Scaled, Scaled]) -> None:
    first, second = pair
    assert [len(x.scale.specializations) for x in pair] == [1, 2]
    assert len(Scaled.scale.specializations) == 3
    assert first.scale.host_ir() != second.scale.host_ir()
    assert "5." in second.scale.llvm_ir(optimized=False)
    assert first.scale.profile(randn(3), calls=2).entries
    assert first.scale.match(randn(3)) is not None and first.scale.match(randn(4)) is None
    assert_close(first.scale.call_boxed([randn(3)]), randn(3) * 2)
    first.scale.reset()
    assert first.scale.captured is None and not first.scale.specializations
    assert second.scale.captured is not None and len(second.scale.specializations) == 2
    with pytest.raises(hostjit.Error, match="nothing is compiled of this object yet"):
        first.scale.asm()
    counts = []
    for _ in range(3):  # the first runs, the second is recorded
        _agrees(first.scale, lambda x: x * 2, calls=1)
        _agrees(second.scale, lambda x: x * 3, calls=1)
        counts.append(len(first.scale.specializations))
    assert counts == [0, 1, 1]
    Scaled.scale.reset()
    assert second.scale.captured is Scaled.scale.captured is None


@pytest.mark.parametrize("name", ["scale", "shift"])
def test_a_captured_method_is_a_method(name: str) -> None:
    first, second = Scaled(2.0), Scaled(2.0)
    method = getattr(first, name)
    function = vars(Scaled)[name]
    assert method == getattr(first, name)
    assert (method != getattr(first, name)) is False
    assert method != getattr(second, name) and method != types.MethodType(len, first)
    assert len({method, getattr(first, name), getattr(second, name)}) == 2
    assert (method.__name__, method.__doc__) == (name, f"{name.capitalize()}s.")
    assert (method.__qualname__, method.__module__) == (f"Scaled.{name}", __name__)
    assert next(iter(inspect.signature(method).parameters)) == "x"
    assert inspect.ismethod(method) and isinstance(method, types.MethodType)
    assert method.__self__ is first and method.__func__ is function
    assert method.__wrapped__ is function.__wrapped__
    assert name in repr(method) and repr(first) in repr(method)
    assert weakref.ref(method)() is method and weakref.WeakMethod(method)() == method
    assert functools.wraps(method)(lambda: None).__name__ == name  # type: ignore[misc]
    for copied in (copy.copy(method), copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert type(copied) is type(method) and copied.__func__ is function
        assert_close(copied(randn(3)), method(randn(3)))
    assert copy.copy(method) == method != copy.deepcopy(method)
    with pytest.raises(AttributeError, match="no_such"):
        method.no_such  # noqa: B018
    with pytest.raises(AttributeError):
        method.attribute = 1
    with pytest.raises(TypeError, match="takes a CompiledFunction"):
        hostjit._C.CompiledMethod(len, first)


def test_ways_to_call_a_method(pair: tuple[Scaled, Scaled]) -> None:
    method, x = pair[1].scale, randn(3)
    expected = x * 3 * 5
    for found in (
        method(x, 5),
        method(x, k=5),
        method(k=5, x=x),
        method(*(x, 5)),
        method(x=x, k=5),
        functools.partial(method, x)(k=5),
        next(map(method, (x,), (5,))),
        pair[1].scale(x, 5),
    ):
        assert_close(found, expected)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        method()


def test_a_compiled_method_answers_as_its_function() -> None:
    one = Scaled(2.0)
    _agrees(one.shift, lambda x: x + 2)
    assert one.shift.host_ir() == Scaled.shift.host_ir()
    assert len(one.shift.specializations) == len(Scaled.shift.specializations) > 0


def test_class_methods_have_recordings_for_each_class() -> None:
    class Base:
        factor = 2

        @classmethod
        @hostjit.capture
        def scale(cls, x: torch.Tensor) -> torch.Tensor:
            return x * cls.factor

    class Other(Base):
        factor = 3

    # From CPython 3.13 on, a class method gives what it is made of the class as an argument.
    is_argument = sys.version_info >= (3, 13)
    _agrees(Base.scale, lambda x: x * 2)
    assert Base.scale.captured is not None and (Other.scale.captured is None or is_argument)
    _agrees(Other().scale, lambda x: x * 3)
    Base.scale.reset()
    assert Base.scale.captured is None and (Other.scale.captured is not None or is_argument)


def test_recordings_of_no_object_in_particular() -> None:
    @dataclasses.dataclass(eq=False)
    class Point:
        x: torch.Tensor

        @hostjit.capture
        def double(self) -> torch.Tensor:
            return self.x * 2

    points = [Point(randn(3)) for _ in range(4)]
    for point in points:
        assert_close(point.double(), point.x * 2)
    method = points[0].double
    assert method.captured is Point.double.captured is not None
    method.reset()
    assert Point.double.captured is None


def test_an_object_that_made_calls_run_eagerly() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count: dict[str, int] = {}
            self.counts = True

        @hostjit.capture
        def add(self, x: torch.Tensor) -> torch.Tensor:
            if self.counts:
                self.count[f"call {len(self.count)}"] = 1
            return x + len(self.count)

    counter = Counter()
    with pytest.warns(UserWarning, match="changes .*count"):
        _agrees(counter.add, lambda x: x + len(counter.count))
    counter.counts = False
    counter.add.reset()
    _agrees(counter.add, lambda x: x + len(counter.count))
    assert counter.add.captured is not None


def test_a_mismatch_names_the_method() -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @hostjit.capture(on_mismatch="raise")
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    first, second = Model(2.0), Model(3.0)
    for _ in range(4):
        _agrees(first.scale, lambda x: x * 2, calls=1)
        _agrees(second.scale, lambda x: x * 3, calls=1)
    with pytest.raises(hostjit.MismatchError, match="argument 'x': sizes expected"):
        first.scale(randn(4))
