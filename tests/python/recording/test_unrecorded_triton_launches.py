# SPDX-License-Identifier: Apache-2.0
"""What Triton does in a recorded call and is not recorded, and what is refused after it ran."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import hostjit

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from triton_driver import triton_without_a_gpu  # noqa: E402
from triton_recordings import add, added, fakes, multiply, record, tuned  # noqa: E402


@pytest.fixture(autouse=True)
def driver() -> Iterator[Any]:
    with triton_without_a_gpu() as found, torch.no_grad():
        yield found


@triton.jit
def store_behind(addresses, n):  # type: ignore[no-untyped-def]
    pointer = tl.load(addresses).to(tl.pointer_type(tl.float32))
    tl.store(pointer + tl.arange(0, 16), 1.0, mask=tl.arange(0, 16) < n)


def test_a_kernel_that_is_only_compiled_is_not_recorded(driver: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        add.warmup(x, x, x, 64, 0.5, BLOCK=64, grid=(1,))
        return x + 1

    recorded = record(f, *fakes(64))
    assert not recorded.problem and not recorded.nodes() and not driver.launches


def test_launches_inside_of_an_operator_belong_to_it(driver: Any) -> None:
    with torch.library._scoped_library("hostjit_tests", "DEF") as library:
        library.define("doubled(Tensor x) -> Tensor")
        library.impl("doubled", lambda x: added(x, x), "CompositeExplicitAutograd")

        def f(x: torch.Tensor) -> torch.Tensor:
            return torch.ops.hostjit_tests.doubled(x)

        recorded = record(f, *fakes(64))
    assert not recorded.problem and not recorded.nodes() and len(driver.launches) == 1


def test_other_threads_are_not_recorded(driver: Any) -> None:
    def launch(x: torch.Tensor) -> None:
        with x.fake_mode:  # type: ignore[attr-defined]
            added(x, x)

    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.utils._python_dispatch._disable_current_modes():
            thread = threading.Thread(target=launch, args=fakes(64))
            thread.start()
            thread.join()
        return added(x, x)

    recorded = record(f, *fakes(64))
    assert len(driver.launches) == 2 and len(recorded.nodes()) == 1


def test_triton_is_as_it_was_whatever_happens() -> None:
    run, bench = triton.JITFunction.run, type(tuned())._bench
    inside: list[Any] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        inside.append(triton.JITFunction.run)
        record(lambda y: y + 1, *fakes(4))
        inside.append(triton.JITFunction.run)
        raise ValueError

    with pytest.raises(ValueError):
        record(f, *fakes(64))
    assert inside[0] is inside[1] is not run
    assert triton.JITFunction.run is run and type(tuned())._bench is bench


@pytest.mark.parametrize("options", [{"warps": 4}, {"n": 4}])
def test_an_error_of_a_launch_is_that_of_triton(options: dict[str, int]) -> None:
    errors: list[Exception] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        try:
            added(x, x, **options)
        except (TypeError, KeyError) as error:
            errors.append(error)
        return x

    recorded = record(f, *fakes(64))
    assert len(errors) == 1
    assert ("a launch of Triton raises" in recorded.problem) == ("warps" in options)


# What is refused, after it ran.


@contextlib.contextmanager
def hook_of_launches() -> Iterator[None]:
    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(print)
    yield
    hooks.remove(print)


@contextlib.contextmanager
def hook_of_runs() -> Iterator[None]:
    add.add_pre_run_hook(lambda *_, **__: None)
    yield
    add.pre_run_hooks.clear()


def descriptor(x: torch.Tensor) -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    load_of_descriptor[(1,)](TensorDescriptor(x, [64], [1], [16]), x)


@triton.jit
def load_of_descriptor(source, out):  # type: ignore[no-untyped-def]
    tl.store(out + tl.arange(0, 16), source.load([0]))


@triton.jit
def store_of_pair(pair):  # type: ignore[no-untyped-def]
    tl.store(pair[0] + tl.arange(0, 16), pair[1])


REFUSED: list[tuple[Any, Any, str]] = [
    (hook_of_launches, lambda x: added(x, x), "is launched with hooks"),
    (hook_of_runs, lambda x: added(x, x), "has hooks that run ahead of it"),
    (None, descriptor, "takes a TMA descriptor of the host, argument 'source'"),
    (None, lambda x: store_behind[(1,)](x, 4), "may write memory that is none of its"),
    (None, lambda x: store_of_pair[(1,)]((x, 2.0)), "takes a tuple, argument 'pair'"),
    (None, lambda x: added(x, x.conj_physical()._neg_view()), "negated lazily"),
]


@pytest.mark.parametrize(("around", "function", "message"), REFUSED)
def test_what_a_replay_would_not_do(driver: Any, around: Any, function: Any, message: str) -> None:
    dtype = torch.int64 if "memory" in message else torch.float32
    with (around or contextlib.nullcontext)():
        recorded = record(function, *fakes(64, dtype=dtype))
    assert message in recorded.problem
    assert not recorded.nodes() and len(driver.launches) == 1


def test_a_tensor_of_another_device_is_refused() -> None:
    recorded = record(lambda x: added(x, x), *fakes(64, device="cuda:1"))
    assert "'add' of Triton is launched on cuda:0 with a tensor on cuda:1" in recorded.problem


def test_a_heuristic_that_asks_for_an_address_is_refused() -> None:
    values = {"BLOCK": lambda given: 64 if given["x"].storage_offset() % 4 == 0 else 32}
    kernel = triton.heuristics(values)(multiply)

    def f(x: torch.Tensor) -> None:
        kernel[(1,)](x, x, x.numel())

    assert "it calls storage_offset() of a tensor" in record(f, *fakes(64)).problem


def test_a_compiled_kernel_that_is_launched_by_itself_is_refused(driver: Any) -> None:
    x = fakes(64)[0]
    compiled = add.warmup(x, x, x, 64, 0.5, BLOCK=64, grid=(1,))
    recorded = record(lambda x: compiled[(1, 1, 1)](x, x, x, 64, 0.5, 64), x)
    assert "launches a Triton kernel past the dispatcher" in recorded.problem
    assert len(driver.launches) == 1


def test_measuring_is_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(AttributeError):  # here is nothing to measure
            triton.testing.do_bench(lambda: added(x, x))
        return x

    assert "it measures how long something takes" in record(f, *fakes(64)).problem


def test_the_interpreter_of_triton_is_refused() -> None:
    from triton.runtime.interpreter import InterpretedFunction

    interpreted = InterpretedFunction(add.fn)

    def f(x: torch.Tensor) -> torch.Tensor:
        interpreted[(1,)](x, x, x, 64, 2.0, BLOCK=64)
        return x

    captured = hostjit.capture(f)
    with warnings.catch_warnings(record=True) as said:
        for _ in range(5):
            torch.testing.assert_close(captured(torch.ones(64)), torch.full((64,), 3.0))
    assert len(said) == 1 and "runs eagerly" in str(said[0].message)
    assert captured.captured is None
