# SPDX-License-Identifier: Apache-2.0
"""Classes that compiled code changes or calls, and tensors that it looks for among values."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs in parts")


class Counted:
    made = 0

    def through_class(self) -> int:
        type(self).made += 1
        return self.made

    def through_base(self) -> int:
        Counted.made += 1
        return self.made


class Derived(Counted):
    pass


class Layer(nn.Module):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Layer.calls += 1
        return x * self.calls


class Once(type):
    made: ClassVar[dict[type, Any]] = {}

    def __call__(cls, *args: Any) -> Any:
        if cls not in Once.made:
            Once.made[cls] = super().__call__(*args)
        return Once.made[cls]


class Shared(metaclass=Once):
    def __init__(self, gain: float) -> None:
        self.gain = gain


def of_derived_class(x: Tensor) -> Tensor:
    Counted.made += 1
    return x * Derived.made


def of_both(x: Tensor) -> Tensor:
    Derived.made += 1
    Counted.made += 1
    return x * Derived.made + Counted.made


def of_a_new_object(x: Tensor) -> Tensor:
    Counted.made = Counted.made + 2
    return x * Derived().made


def deleted(x: Tensor) -> Tensor:
    Derived.made = 7
    del Derived.made
    return x * Derived.made


PROGRAMS: list[Callable[[Tensor], Any]] = [
    lambda x: x * Counted().through_class(),
    lambda x: x * Derived().through_class(),
    lambda x: x * Derived().through_base(),
    lambda x: x * Shared(2.0).gain + (Shared(3.0) is Shared(4.0)),
    of_derived_class,
    of_both,
    of_a_new_object,
    deleted,
    Layer(),
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_classes_that_change(number: int) -> None:
    function = PROGRAMS[number]

    def results(run: Callable[[Tensor], Any]) -> list[Any]:
        Counted.made = Layer.calls = 0
        Once.made.clear()
        if "made" in vars(Derived):
            del Derived.made
        found = [run(torch.ones(1)).item() for _ in range(4)]
        return [*found, Counted.made, vars(Derived).get("made"), Layer.calls]

    assert results(hostjit.compile(function)) == results(function)


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="Dynamo stops where a class is changed")
def test_derived_classes_are_compiled_with() -> None:
    Counted.made = 0
    if "made" in vars(Derived):
        del Derived.made
    fast = hostjit.compile(of_derived_class, fallback=False)
    assert [fast(torch.ones(1)).item() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert len(fast.specializations) == 2


def test_tensors_among_values() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Any, ...]:
        found = x in [x], x in (None, "a", x), None in [x], "a" in [x, 1], 1 in [2, 1, x]
        return *found, x in {"a": x}.values(), x is y, x in [y, x], 1 in [x], y in (2.0, y)

    fast = hostjit.compile(function)
    one, two = torch.ones(1), torch.full((1,), 2.0)
    for x, y in ((one, two), (one, one), (two, one), (two, two), (one, one.clone())):
        assert fast(x, y) == function(x, y)
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value"):
        fast(torch.ones(2), torch.ones(2))


def test_a_tensor_among_values_is_compiled() -> None:
    kept = torch.ones(2)
    fast = hostjit.compile(lambda x: x * (kept in [None, kept]), fallback=False)
    assert fast(torch.ones(2)).tolist() == [1.0, 1.0]


def test_dynamo_warns_of_nothing() -> None:
    def timed(x: Tensor) -> Tensor:
        begin = time.perf_counter()
        y = x * 2
        return y + (time.perf_counter() - begin > 1e6)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        hostjit.compile(timed)(torch.ones(1))
    assert all(str(warning.message).startswith("hostjit: ") for warning in found)


def test_attributes_that_hide_inherited_ones() -> None:
    class Base:
        gain = 2

    class Derived(Base):
        pass

    found = Derived()
    functions = [
        lambda x: x * found.gain,
        lambda x: x * getattr(found, "gain"),  # noqa: B009
        lambda x: x * getattr(found, "gain", 5),
    ]
    compiled = [hostjit.compile(function) for function in functions]
    x = torch.ones(2)
    for change in (
        lambda: None,
        lambda: setattr(Derived, "gain", 7),
        lambda: delattr(Base, "gain"),
    ):
        change()
        for function, fast in zip(functions, compiled, strict=True):
            assert torch.equal(fast(x), function(x))
