# SPDX-License-Identifier: Apache-2.0
"""Recordings for an object go with it, and are not taken for those of an object in its place."""

from __future__ import annotations

import functools
import gc
import threading
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


def _kinds() -> list[type[Any]]:
    class Plain:
        def __init__(self, factor: float) -> None:
            self.weight = torch.full((3,), factor)

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    class Module(torch.nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((3,), factor))
            self.part = torch.nn.Linear(3, 3)

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight + 0 * self.part(x)

    class Holding:
        def __init__(self, factor: float) -> None:
            self.model = Module(factor)

        @property
        def weight(self) -> torch.Tensor:
            return self.model.weight

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.model.weight

    return [Plain, Module, Holding]


KINDS = [kind.__name__ for kind in _kinds()]


def _kind(name: str) -> type[Any]:
    return next(kind for kind in _kinds() if kind.__name__ == name)


@pytest.mark.parametrize("name", KINDS)
def test_an_object_is_freed_with_its_recordings(name: str) -> None:
    kind = _kind(name)
    with torch.no_grad():
        stays, goes = kind(2.0), kind(3.0)
        for _ in range(3):
            assert_close(stays.scale(randn(3)), randn(3) * 2)
            assert_close(goes.scale(randn(3)), randn(3) * 3)
        assert len(kind.scale.specializations) == 2
        last = kind.scale.captured
        recording = weakref.ref(goes.scale.captured)
        gone = [weakref.ref(goes), weakref.ref(goes.weight), recording]
        assert last is not stays.scale.captured
        del goes, last
        gc.collect()
        assert [reference() for reference in gone] == [None] * 3
        assert len(kind.scale.specializations) == len(stays.scale.specializations) == 1
        assert kind.scale.captured is stays.scale.captured is not None
        assert_close(stays.scale(randn(3)), randn(3) * 2)


@pytest.mark.parametrize("name", KINDS)
def test_many_objects_leave_nothing(name: str) -> None:
    kind = _kind(name)
    owner = kind.scale.owner
    lengths = set()
    with torch.no_grad():
        for turn in range(12):
            one = kind(float(turn))
            counts = []
            for _ in range(3):
                assert_close(one.scale(randn(3)), randn(3) * turn)
                counts.append(len(one.scale.specializations))
            assert counts == [0, 1, 1]  # each is recorded anew, at its second call
            del one
            gc.collect()
            lengths.add((len(kind.scale.specializations), len(list(owner._calls))))
    assert lengths == {(0, 0)}
    assert kind.scale.captured is None


def test_an_object_at_the_same_place_is_another() -> None:
    """With one that takes the memory of the object and of its attributes, again and again."""

    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def __hash__(self) -> int:  # its fields are not compared in place of it
            return 1

        def __eq__(self, other: object) -> bool:
            return True

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    places = set()
    for turn in range(16):
        model = Model(float(turn))
        places.add(id(model))
        for _ in range(2 + turn % 3):
            assert_close(model.scale(randn(3)), randn(3) * turn)
        del model
    assert len(places) < 40


def test_objects_are_asked_for_nothing() -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def __hash__(self) -> int:
            raise AssertionError

        def __eq__(self, other: object) -> bool:
            raise AssertionError

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    first, second = Model(2.0), Model(3.0)
    for _ in range(4):
        assert_close(first.scale(randn(3)), randn(3) * 2)
        assert_close(second.scale(randn(3)), randn(3) * 3)
    assert first.scale != second.scale and len({first.scale, first.scale}) == 1
    first.scale.reset()
    assert first.scale.captured is None and second.scale.captured is not None
    del first, second
    assert not Model.scale.specializations


def test_an_object_that_is_an_argument() -> None:
    class Settings(torch.nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

    fast = hostjit.capture(lambda x, settings, more: x * settings.factor * more["one"].factor)
    kept = Settings(2.0)
    for turn in range(4):
        settings, more = Settings(float(turn)), Settings(5.0)
        for _ in range(3):
            assert_close(fast(randn(3), settings, {"one": more}), randn(3) * turn * 5)
            assert_close(fast(randn(3), kept, more={"one": kept}), randn(3) * 4)
        assert len(fast.specializations) == 2
        gone = weakref.ref(more if turn % 2 else settings)
        if turn % 2:
            del more
        else:
            del settings
        gc.collect()
        assert gone() is None
        assert len(fast.specializations) == 1  # one of its two objects is gone


def test_a_training_step_is_freed() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model = torch.nn.Linear(3, 3)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)

        @hostjit.capture
        def step(self, x: torch.Tensor) -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            return loss.detach()

    trainer = Trainer()
    losses = [float(trainer.step(randn(2, 3))) for _ in range(6)]
    assert losses[-1] < losses[0] and trainer.step.captured is not None
    parts = (trainer, trainer.model, trainer.optimizer, trainer.model.weight)
    gone = [weakref.ref(each) for each in parts]
    del trainer, parts
    gc.collect()
    assert [reference() for reference in gone] == [None] * 4
    assert not Trainer.step.specializations


def test_modules_and_optimizers_as_arguments_are_freed() -> None:
    @hostjit.capture
    def step(model: Any, optimizer: Any, x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        step(model, optimizer, randn(2, 3))
    assert step.captured is not None
    gone = [weakref.ref(each) for each in (model, optimizer, model.weight)]
    del model, optimizer
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3
    assert not step.specializations and step.captured is None


def test_an_object_that_goes_in_the_middle_of_a_call() -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    for delete in (gc.collect, lambda: None):
        models = [Model(2.0), Model(3.0)]
        for model in models * 3:
            assert_close(model.scale(randn(3)), randn(3) * model.factor)
        del model
        kept = models[0]
        holder: list[Any] = [models.pop()]
        if delete is gc.collect:
            holder.append(holder)  # a cycle

        def in_call(x: torch.Tensor, holder: list[Any] = holder, delete: Any = delete) -> Any:
            holder.clear()
            delete()
            return x

        hostjit.capture(in_call)(randn(3))
        assert len(Model.scale.specializations) == 1
        assert_close(kept.scale(randn(3)), randn(3) * 2)
        Model.scale.reset()


def test_a_call_by_a_finalizer() -> None:
    results = []

    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

        def __del__(self) -> None:
            results.append(self.scale(randn(3)))

    for turn in range(4):
        model = Model(float(turn))
        for _ in range(3):
            model.scale(randn(3))
        del model
        gc.collect()
    assert_close(torch.stack(results), torch.stack([randn(3) * turn for turn in range(4)]))
    assert not Model.scale.specializations


def test_an_object_that_comes_back_keeps_its_recordings() -> None:
    saved: list[Any] = []

    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

        def __del__(self) -> None:
            saved.append(self)

    model = Model(2.0)
    for _ in range(3):
        model.scale(randn(3))
    del model
    assert saved[0].scale.captured is not None
    assert_close(saved[0].scale(randn(3)), randn(3) * 2)


def test_objects_without_weak_references_are_kept() -> None:
    class Slotted:
        __slots__ = ("factor",)

        def __init__(self, factor: float) -> None:
            self.factor = factor

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    for turn in range(4):
        model = Slotted(float(turn))
        for _ in range(3):
            assert_close(model.scale(randn(3)), randn(3) * turn)


def _scaling() -> type[Any]:
    class Model(torch.nn.Module):
        __slots__ = ("factor",)

        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    return Model


def test_numbers_of_lost_objects_are_not_those_of_objects_in_their_places() -> None:
    model_class = _scaling()
    places: list[int] = []
    turn = 0
    while max(map(places.count, places), default=0) < 4:
        turn += 1
        assert turn < 500
        model = model_class(float(turn))
        places.append(id(model))
        for _ in range(3):
            assert_close(model.scale(randn(3)), randn(3) * turn)
        assert len(model_class.scale.specializations) == 1 and model.scale.captured is not None
        del model
        assert not model_class.scale.specializations


def test_objects_that_go_in_other_threads() -> None:
    model_class = _scaling()
    errors: list[BaseException] = []

    def use(offset: int) -> None:
        try:
            for turn in range(20):
                model = model_class(float(offset + turn))
                for _ in range(3):
                    assert_close(model.scale(randn(3)), randn(3) * (offset + turn))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(100 * index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not errors and not model_class.scale.specializations


def test_what_is_held_weakly() -> None:
    kind = _kind("Plain")
    one = kind(2.0)
    weakly = (one, torch.nn.Linear(1, 1), _kind("Holding")(1.0))
    others = (one.scale, kind.scale, one.__init__, kind, randn(1), len, functools.partial(len))
    held = hostjit._C.is_held_weakly
    assert [*map(held, weakly)] == [True] * 3
    assert not any(map(held, (*others, torch, torch.nn.Parameter(randn(1)), 1, None, [], object())))


@pytest.mark.filterwarnings("ignore:hostjit")
def test_methods_of_objects_as_arguments() -> None:
    kind = _kind("Plain")
    fast = hostjit.capture(lambda method, x: method(x) + 1)
    for turn in range(20):
        one = kind(float(turn % 5))
        for _ in range(3):  # each attribute access makes another method
            assert_close(fast(one.scale, randn(3)), randn(3) * (turn % 5) + 1)


@pytest.mark.parametrize("compile", [hostjit.capture, hostjit.compile])
def test_a_new_object_at_each_call(compile: Callable[..., Any]) -> None:
    class Factor(torch.nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

    fast = compile(lambda x, factor: x * factor.factor)
    for turn in range(4):
        assert_close(fast(randn(3), Factor(float(turn))), randn(3) * turn)
