# SPDX-License-Identifier: Apache-2.0
"""What can be captured, and where it can be called: methods of all kinds, threads, profilers."""

from __future__ import annotations

import _lsprof
import asyncio
import contextlib
import cProfile
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import hostjit
from hostjit.recording.running.function_watcher import unseen_watcher

pytestmark = pytest.mark.usefixtures("each_runtime")
randn = torch.randn


def _agrees(
    fast: Callable[..., Any], eager: Callable[..., Any], *more: Any, calls: int = 4
) -> None:
    for _ in range(calls):
        x = randn(3)
        assert_close(fast(x, *more), eager(x, *more))


@pytest.mark.parametrize("capture", [hostjit.capture, hostjit.compile])
def test_static_methods(capture: Callable[[Any], Any]) -> None:
    class Outside:
        @staticmethod
        @capture
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

    class Inside:
        @capture
        @staticmethod
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

    for kind in (Outside, Inside):
        _agrees(kind.double, lambda x: x * 2)
        _agrees(kind().double, lambda x: x * 2)
        assert len(kind.double.specializations) == 1


@pytest.mark.parametrize("capture", [hostjit.capture, hostjit.compile])
def test_class_methods(capture: Callable[[Any], Any]) -> None:
    class Outside:
        factor = 2

        @classmethod
        @capture
        def scale(cls, x: torch.Tensor) -> torch.Tensor:
            return x * cls.factor

    class Inside:
        factor = 2

        @capture
        @classmethod
        def scale(cls, x: torch.Tensor) -> torch.Tensor:
            return x * cls.factor

    for kind in (Outside, Inside):
        other = type("Other", (kind,), {"factor": 3})
        for _ in range(4):
            _agrees(kind.scale, lambda x: x * 2, calls=1)
            _agrees(other.scale, lambda x: x * 3, calls=1)
            _agrees(other().scale, lambda x: x * 3, calls=1)


def test_captured_is_the_last_recording() -> None:
    fast = hostjit.capture(lambda model, x: model(x))
    models = [torch.nn.Tanh(), torch.nn.Sequential(torch.nn.Tanh(), torch.nn.ReLU())]
    for model in models:
        for _ in range(2):
            fast(model, randn(3))
    assert fast.captured.operators == 2
    fast(models[0], randn(4))
    assert fast.captured.operators == 1


def test_methods_of_the_class_above() -> None:
    class Base:
        factor = 2.0

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    class Derived(Base):
        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return super().scale(x) + 1

    model = Derived()
    for _ in range(5):
        _agrees(model.scale, lambda x: x * 2 + 1, calls=1)
        _agrees(Base().scale, lambda x: x * 2, calls=1)
    assert Base.scale.captured is not None and Derived.scale.captured is not None


def test_properties_and_slots() -> None:
    class Model:
        __slots__ = ("weight",)

        def __init__(self) -> None:
            self.weight = randn(3)

        @property
        @hostjit.capture
        def doubled(self) -> torch.Tensor:
            return self.weight * 2

        @hostjit.capture
        def add(self, x: torch.Tensor, k: float) -> torch.Tensor:
            return self.weight * k + x

        add_three = functools.partialmethod(add, k=3)

    models = [Model(), Model()]
    for _ in range(4):
        for model in models:
            assert_close(model.doubled, model.weight * 2)
            weight = model.weight
            _agrees(model.add_three, lambda x, weight=weight: weight * 3 + x, calls=1)
    models[0].weight = randn(3)
    assert_close(models[0].doubled, models[0].weight * 2)


def test_new_objects_without_attributes() -> None:
    class Empty:
        @hostjit.capture(fallback=False)
        def double(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    _agrees(lambda x: Empty().double(x), lambda x: x * 2, calls=6)
    assert Empty.double.captured is not None


def test_partials_and_callables() -> None:
    partial = hostjit.capture(functools.partial(lambda x, k: x * k, k=2))
    _agrees(partial, lambda x: x * 2)
    of_captured = functools.partial(hostjit.capture(lambda x, k: x * k), k=2)
    _agrees(of_captured, lambda x: x * 2)
    assert partial.captured is not None and of_captured.func.captured is not None

    class Scale:
        factor = 2

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    scale = Scale()
    fast = hostjit.capture(scale)
    for scale.factor in (2, 2, 2, 5, 5):
        _agrees(fast, scale, calls=1)
    assert len(fast.specializations) == 2
    _agrees(hostjit.capture(torch.sin), torch.sin)


def test_generators_and_coroutines() -> None:
    def generate(x: torch.Tensor) -> Any:
        for k in range(3):
            yield x * k

    async def compute(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    async def stream(x: torch.Tensor) -> Any:
        for k in range(3):
            yield x * k

    generator, coroutine, streams = map(hostjit.capture, (generate, compute, stream))

    async def run() -> None:
        for _ in range(4):
            x = randn(3)
            assert_close(list(generator(x)), list(generate(x)))
            assert_close(await coroutine(x), x * 2)
            assert_close([y async for y in streams(x)], list(generate(x)))

    with pytest.warns(UserWarning, match="it makes generators or coroutines"):
        asyncio.run(run())
    assert generator.captured is coroutine.captured is streams.captured is None


def test_calls_in_tasks() -> None:
    fast = hostjit.capture(lambda x: x * 2)

    async def call() -> None:
        for _ in range(4):
            _agrees(fast, lambda x: x * 2, calls=1)
            await asyncio.sleep(0)

    async def run() -> None:
        await asyncio.gather(*(call() for _ in range(4)))

    asyncio.run(run())
    assert len(fast.specializations) == 1


def test_nested_captures() -> None:
    inner = hostjit.capture(lambda x: x * 2, on_mismatch="raise", warmup=3, prune=True)
    middle = hostjit.capture(lambda x: inner(x) + 1)
    outer = hostjit.capture(lambda x: middle(x) + inner(x))
    compiled = hostjit.compile(lambda x: outer(x) - 1)
    around = hostjit.capture(lambda x: compiled(x) * 3)
    for size in (3, 3, 3, 4, 4, 4):
        x = randn(size)
        assert_close(outer(x), x * 4 + 1)
        assert_close(around(x), x * 12)
    assert len(outer.specializations) == 2
    inner.reset()
    assert_close(outer(x), x * 4 + 1)
    assert inner.captured is None and middle.captured is None
    again = hostjit.capture(hostjit.capture(lambda x: x * 2, warmup=9), warmup=0)
    _agrees(again, lambda x: x * 2)
    assert again.captured is not None


def test_recursion() -> None:
    @hostjit.capture
    def even(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else odd(x + 1, n - 1)

    @hostjit.capture
    def odd(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * 2 if n == 0 else even(x * 2, n - 1)

    def expected(x: torch.Tensor, n: int, is_even: bool) -> torch.Tensor:
        if n == 0:
            return x if is_even else x * 2
        return expected(x + 1 if is_even else x * 2, n - 1, not is_even)

    for n in (4, 4, 4, 5, 5, 4, 0, 1):
        x = randn(3)
        assert_close(even(x, n), expected(x, n, True))
        assert_close(odd(x, n), expected(x, n, False))

    @hostjit.capture
    def total(tree: Any) -> Any:
        return tree if isinstance(tree, torch.Tensor) else sum(total(item) for item in tree)

    for _ in range(4):
        x, y, z = randn(3), randn(3), randn(3)
        assert_close(total([x, [y, (z, x)]]), x + y + z + x)
    assert total.captured is not None


def test_a_reset_in_the_middle_of_a_call() -> None:
    box: list[Any] = []

    def double(x: torch.Tensor) -> torch.Tensor:
        box[0].reset()
        return x * 2

    box.append(hostjit.capture(double, warmup=0))
    _agrees(box[0], lambda x: x * 2)
    assert box[0].captured is None


def test_resets_by_another_thread() -> None:
    recorded, forgotten = threading.Event(), threading.Event()

    def double(x: torch.Tensor) -> torch.Tensor:
        recorded.set()
        forgotten.wait(60)
        return x * 2

    @torch.library.custom_op("hostjit_tests::waits", mutates_args=())
    def waits(x: torch.Tensor) -> torch.Tensor:
        return double(x)

    waits.register_fake(torch.empty_like)
    fast = hostjit.capture(lambda x: waits(x) + 1, warmup=0)
    thread = threading.Thread(target=lambda: (recorded.wait(60), fast.reset(), forgotten.set()))
    thread.start()
    _agrees(fast, lambda x: x * 2 + 1, calls=1)
    thread.join()
    assert fast.captured is None
    _agrees(fast, lambda x: x * 2 + 1)
    assert fast.captured is not None


def test_methods_in_threads() -> None:
    class Counter:
        def __init__(self, step: float) -> None:
            self.step = step
            self.count = torch.zeros(1)

        @hostjit.capture
        def add(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(self.step)
            return x * self.step

    failures: list[BaseException] = []

    def work(step: float) -> None:
        try:
            counter = Counter(step)
            for number in range(40):
                x = torch.full((3,), float(number))
                assert_close(counter.add(x), x * step)
            assert_close(counter.count, torch.full((1,), 40 * step))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(float(step),)) for step in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_static_inputs_that_are_none() -> None:
    with pytest.raises(hostjit.Error, match="static_inputs is 'state', expected a list of names"):
        hostjit.capture(lambda state: state, static_inputs="state")
    with pytest.raises(hostjit.Error, match="there is no parameter 'y', only 'x', 'k'"):
        hostjit.capture(lambda x, k: x, static_inputs=["x", "y"])
    fast = hostjit.capture(lambda *xs, **named: xs[0] * named["y"], static_inputs=["y"], warmup=0)
    y = randn(3)
    _agrees(lambda x: fast(x, y=y), lambda x: x * y)
    assert len(fast.specializations) == 1


@pytest.mark.parametrize("profiler", [cProfile.Profile, _lsprof.Profiler])
def test_profilers(profiler: Callable[[], Any]) -> None:
    """A profiler in C goes on after a recording, or calls are not recorded while it runs."""

    def half(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    fast = hostjit.capture(lambda x: x * 2)
    profile = profiler()
    profile.enable()
    try:
        _agrees(fast, lambda x: x * 2)
        half(randn(3))
    finally:
        profile.disable()
    names = [getattr(entry.code, "co_name", "") for entry in profile.getstats()]
    assert "half" in names
    assert profiler is _lsprof.Profiler or fast.captured is not None
    _agrees(fast, lambda x: x * 2)
    assert fast.captured is not None


def test_recordings_of_several_threads_leave_functions_as_they_were() -> None:
    before = torch.overrides.has_torch_function
    first, second = unseen_watcher(), unseen_watcher()
    with contextlib.ExitStack() as stack:
        stack.enter_context(first)
        inner = contextlib.ExitStack()
        inner.enter_context(second)
        assert torch.overrides.has_torch_function is not before
        stack.close()
        assert torch.overrides.has_torch_function is not before
        inner.close()
    assert torch.overrides.has_torch_function is before
