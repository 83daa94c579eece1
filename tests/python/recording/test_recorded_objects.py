# SPDX-License-Identifier: Apache-2.0
"""Objects of which each call brings another: their fields are arguments."""

from __future__ import annotations

import dataclasses
import gc
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch.testing import assert_close

import hostjit

randn = torch.randn


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor
    scale: float = 2.0

    def product(self) -> torch.Tensor:
        return self.x * self.y * self.scale


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    y: torch.Tensor
    names: list[str] = dataclasses.field(default_factory=list)
    total: torch.Tensor = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.x + self.y)


@dataclasses.dataclass
class Longer(Batch):
    more: torch.Tensor | None = None


@dataclasses.dataclass(slots=True)
class Slotted:
    x: torch.Tensor
    y: torch.Tensor
    scale: float = 2.0


@dataclasses.dataclass(slots=True)
class SlottedLonger(Slotted):
    z: int = 1


class Plain:
    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y


class OnlySlots:
    __slots__ = ("x", "y")

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y


class SlotsAgain(OnlySlots):
    __slots__ = ("more", "x")

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        super().__init__(x, y)
        self.more = 1


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


KINDS: list[Callable[..., Any]] = [
    *(Batch, Frozen, Longer, Slotted, SlottedLonger, Plain, OnlySlots, SlotsAgain, Pair),
    lambda x, y: types.SimpleNamespace(x=x, y=y),
]


def _tensors(value: Any) -> list[torch.Tensor]:
    names = ("x", "y", "scale", "total", "more", "z")
    return [
        getattr(value, name) for name in names if isinstance(getattr(value, name, 0), torch.Tensor)
    ]


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("make", KINDS)
def test_a_new_object_at_each_call(make: Callable[..., Any], runtime: str) -> None:
    def step(batch: Any, bias: torch.Tensor) -> Any:
        return batch.x * batch.y + bias + getattr(batch, "scale", 0.0)

    fast = hostjit.capture(step, runtime=runtime)
    for _ in range(8):
        batch, bias = make(randn(3), randn(3)), randn(3)
        assert_close(fast(batch, bias), step(batch, bias))
    assert fast.captured is not None
    assert len(fast.specializations) == 1


@pytest.mark.parametrize("make", KINDS)
def test_within_containers_and_objects(make: Callable[..., Any]) -> None:
    def step(given: dict[str, Any]) -> Any:
        first, second = given["batches"]
        return first.x * second.y, second.x.x - given["last"].y

    fast = hostjit.capture(step)
    for _ in range(8):
        inner = make(randn(3), randn(3))
        batches = [
            make(randn(3), randn(3)),
            make(inner, randn(3)) if make is not Frozen else Batch(inner, randn(3)),
        ]  # type: ignore[arg-type]
        given = {"batches": batches, "last": make(randn(3), randn(3))}
        assert_close(fast(given), step(given))
    assert fast.captured is not None
    assert len(fast.specializations) <= 2


def test_values_in_fields_are_compared() -> None:
    def step(batch: Batch) -> torch.Tensor:
        return batch.product()

    fast = hostjit.capture(step)
    for number in range(12):
        batch = Batch(randn(3), randn(3), [2.0, 3.0][number // 3 % 2])
        assert_close(fast(batch), step(batch))
    assert len(fast.specializations) == 2
    for batch in (Batch(randn(4), randn(4)), Longer(randn(3), randn(3)), Batch(randn(3), randn(1))):
        assert_close(fast(batch), step(batch))
        assert_close(fast(batch), step(batch))


def test_what_is_not_a_field_is_compared() -> None:
    def step(batch: Any) -> torch.Tensor:
        return batch.x * getattr(batch, "extra", 1.0)

    fast = hostjit.capture(step)
    for number in range(12):
        batch = Batch(randn(3), randn(3))
        if number % 3 == 2:
            batch.extra = 5.0  # type: ignore[attr-defined]
        assert_close(fast(batch), step(batch))


def test_methods_of_the_class_are_watched() -> None:
    @dataclasses.dataclass
    class Local:
        x: torch.Tensor

        def double(self) -> torch.Tensor:
            return self.x * 2

    fast = hostjit.capture(lambda batch: batch.double())
    for number in range(9):
        if number == 5:
            Local.double = lambda self: self.x * 3  # type: ignore[method-assign]
        batch = Local(randn(3))
        assert_close(fast(batch), batch.double())
    assert len(fast.specializations) == 2


@pytest.mark.parametrize("make", [Batch, Frozen, Longer, Slotted, SlottedLonger, Plain, OnlySlots])
def test_new_objects_are_returned(make: Callable[..., Any]) -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        return [make(x * 2, y)], make(x + y, x)

    fast = hostjit.capture(step)
    for _ in range(5):
        x, y = randn(3), randn(3)
        (found,), other = fast(x, y)
        (expected,), expected_other = step(x, y)
        assert type(found) is type(expected)
        for got, wanted in ((found, expected), (other, expected_other)):
            assert_close(_tensors(got), _tensors(wanted))
        assert found.y is y
    assert fast.captured is not None


def test_a_training_step() -> None:
    torch.manual_seed(0)
    models = [torch.nn.Linear(3, 1) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    steps: list[Any] = []
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(batch: Batch, model: Any = model, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model(batch.x) - batch.y).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        steps.append(step)
    fast = hostjit.capture(steps[1])
    for _ in range(6):
        batch = Batch(randn(4, 3), randn(4, 1))
        assert_close(fast(batch), steps[0](batch))
    assert fast.captured is not None
    assert len(fast.specializations) == 1


def test_writes_of_fields_are_those_of_the_call() -> None:
    def step(batch: Batch) -> torch.Tensor:
        batch.x.add_(1)
        return batch.x * 2

    fast = hostjit.capture(step)
    for _ in range(5):
        x = randn(3)
        expected = x + 1
        assert_close(fast(Batch(x, randn(3))), expected * 2)
        assert_close(x, expected)
    assert fast.captured is not None


def test_assigned_fields_run_eagerly() -> None:
    def step(batch: Batch) -> torch.Tensor:
        batch.y = batch.x * 2
        return batch.y + 1

    fast = hostjit.capture(step)

    def calls() -> None:
        for _ in range(6):
            batch = Batch(randn(3), randn(3))
            assert_close(fast(batch), batch.x * 2 + 1)
            assert_close(batch.y, batch.x * 2)

    with pytest.warns(UserWarning, match="changes argument 0.y"):
        calls()
    assert fast.captured is None


def test_an_object_that_contains_itself_runs_eagerly() -> None:
    def step(batch: Any) -> torch.Tensor:
        return batch.parent.x * 2

    fast = hostjit.capture(step)

    def calls() -> None:
        for _ in range(6):
            batch: Any = Plain(randn(3), randn(3))
            batch.parent = batch
            assert_close(fast(batch), batch.x * 2)
            batch = None
            gc.collect()

    with pytest.warns(UserWarning, match="an argument is a new Plain, which contains itself"):
        calls()


def test_one_object_at_all_calls_is_one_object() -> None:
    batch = Batch(randn(3), randn(3))
    fast = hostjit.capture(lambda batch, x: batch.x * x)
    for number in range(6):
        x = randn(3)
        if number == 4:
            batch.x = randn(3)
        assert_close(fast(batch, x), batch.x * x)
    assert fast.captured is not None


def test_mismatches_name_the_field() -> None:
    strict = hostjit.capture(lambda batch: batch.x * batch.scale, on_mismatch="raise")
    for _ in range(4):
        strict(Batch(randn(3), randn(3)))
    with pytest.raises(hostjit.MismatchError, match=r"argument 'batch'\['scale'\]: expected 2.0"):
        strict(Batch(randn(3), randn(3), 3.0))
    with pytest.raises(hostjit.MismatchError, match=r"argument 'batch'\['x'\]: sizes expected"):
        strict(Batch(randn(4), randn(3)))


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("known_later", [False, True])
def test_which_object_an_argument_is(known_later: bool) -> None:
    @dataclasses.dataclass(eq=False)
    class Key:
        x: torch.Tensor

    keys = [Key(randn(2)) for _ in range(8)]
    scales = {key: float(number) for number, key in enumerate(keys) if not known_later}

    fast = hostjit.capture(lambda key: key.x * scales.get(key, 9.0))
    for number, key in enumerate(keys):
        if number == 5:
            scales.update({key: float(number) for number, key in enumerate(keys)})
        assert_close(fast(key), key.x * scales.get(key, 9.0))
