# SPDX-License-Identifier: Apache-2.0
"""One compiled function called from many threads, and in other processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo import convert_frame
from torch.utils.data import DataLoader, Dataset

import hostjit

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "python"))

from soak import mixed, soak

needs_safe_tracing = pytest.mark.skipif(
    torch.__version__ < (2, 12)
    and torch.version.cuda is not None
    and not torch.cuda.is_available(),
    reason="PyTorch may crash where several threads trace, in a build for CUDA without a device",
)


@needs_safe_tracing
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_threads_with_mixed_shapes(runtime: str) -> None:
    """Compilations race at the beginning; bench/python/soak.py does this for a minute."""
    compiled = hostjit.compile(mixed, runtime=runtime)
    calls, failures = soak(compiled, seconds=2.0, num_threads=8, sizes=(1, 3, 64, 200))
    assert not failures, failures[0]
    assert calls >= 64
    assert len(compiled.specializations) <= 4


@needs_safe_tracing
def test_threads_through_torch_compile() -> None:
    compiled = torch.compile(mixed, backend="hostjit", dynamic=False)
    calls, failures = soak(compiled, seconds=2.0, num_threads=8, sizes=(1, 3, 64))
    assert not failures, failures[0]
    assert calls >= 48


@torch.library.custom_op("hostjit_tests::slow_to_trace", mutates_args=())
def slow_to_trace(x: Tensor) -> Tensor:
    return x.clone()


class Meanwhile:
    """Compiles linear layers in another thread, for another backend, while operators are traced."""

    def __init__(self) -> None:
        torch.compiler.reset()
        self.pool = ThreadPoolExecutor(1)
        self.x = torch.randn(4, 3)
        self.models = [torch.nn.Linear(3, size) for size in range(1, 7)]
        self.answers: list[Future[Tensor]] = []

    def compile_one(self) -> None:
        model = self.models[len(self.answers)]
        compiled = torch.compile(model, backend="aot_eager", dynamic=True)
        self.answers.append(self.pool.submit(compiled, self.x))
        wait(self.answers, timeout=1)  # at the most: it is to wait for what is under way

    def check(self) -> None:
        assert self.answers
        for model, answer in zip(self.models, self.answers, strict=False):
            torch.testing.assert_close(answer.result(), model(self.x))


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
def test_other_backends_may_compile_meanwhile(compile: Any) -> None:
    meanwhile = Meanwhile()

    def trace(x: Tensor) -> Tensor:
        meanwhile.compile_one()
        return torch.empty_like(x)

    slow_to_trace.register_fake(trace)
    compiled = compile(lambda x: slow_to_trace(x) + 1)
    x = torch.randn(3)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), x + 1)
    meanwhile.check()


def large(x: Tensor) -> Tensor:
    """Enough work that PyTorch's threads share it."""
    return torch.tanh(x) * 2 + x.sum(-1, keepdim=True)


@hostjit.compile
def rows(x: Tensor) -> Tensor:
    return torch.tanh(x) + 1


class Rows(Dataset[Tensor]):
    def __init__(self, function: Any = rows) -> None:
        self.function = function

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        return self.function(torch.full((3,), float(index)))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(3.0), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_load_data(method: str, called: bool) -> None:
    data = Rows()
    if called:
        data[0]
    loader = DataLoader(data, batch_size=3, num_workers=1, multiprocessing_context=method)
    found = torch.cat([*loader])
    expected = torch.stack([torch.full((3,), float(index)).tanh() + 1 for index in range(6)])
    torch.testing.assert_close(found, expected)


def test_a_compiled_module_is_sent_to_workers() -> None:
    model = hostjit.compile(Model())
    data = Rows(model)
    expected = torch.stack([data[index] for index in range(6)])
    loader = DataLoader(data, batch_size=6, num_workers=1, multiprocessing_context="spawn")
    torch.testing.assert_close(next(iter(loader)), expected)


def succeeds_in_a_fork(work: Any) -> bool:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)  # nothing of the tests' runs in the child
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_calls_and_compilations_after_a_fork(runtime: str) -> None:
    compiled = hostjit.compile(large, runtime=runtime)
    x, other = torch.randn(4, 5), torch.randn(2, 3)
    expected, expected_other = compiled(x), large(other)

    def work() -> bool:
        same = torch.equal(compiled(x), expected)
        return same and torch.allclose(compiled(other), expected_other)

    assert succeeds_in_a_fork(work)
    assert torch.equal(compiled(x), expected)


@pytest.mark.parametrize("wrap", [hostjit.compile, hostjit.capture])
@pytest.mark.filterwarnings("ignore:hostjit. .* another thread compiled")
def test_another_thread_compiled_when_the_process_was_forked(wrap: Any) -> None:
    compiled, new = wrap(large), wrap(large)
    x, other = torch.randn(4, 5), torch.randn(2, 3)
    expected = compiled(x)
    entered, leave = threading.Event(), threading.Event()

    def compile() -> None:
        with convert_frame.compile_lock:
            entered.set()
            leave.wait()

    def work() -> bool:
        signal.alarm(60)
        return torch.equal(compiled(x), expected) and torch.equal(new(other), large(other))

    thread = threading.Thread(target=compile)
    thread.start()
    entered.wait()
    try:
        assert succeeds_in_a_fork(work)
    finally:
        leave.set()
        thread.join()


def test_threads_were_used_before_the_fork() -> None:
    """The child has none of them: it goes on in one thread, where eager would wait forever."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        compiled = hostjit.compile(large)
        x = torch.randn(300, 1000)
        expected = compiled(x)
        assert "grid=" in compiled.host_ir()

        def work() -> bool:
            signal.alarm(60)
            result = compiled(x)
            # Row by row: to compare all at once, PyTorch would start threads.
            return all(map(torch.equal, result, expected))

        assert succeeds_in_a_fork(work)
    finally:
        torch.set_num_threads(before)


def report(queue: Any, compiled: Any, x: Tensor) -> None:
    queue.put(compiled(x).tolist())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing(method: str) -> None:
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    x = torch.arange(3.0)
    expected = rows(x).tolist()
    process = context.Process(target=report, args=(queue, rows, x))
    process.start()
    assert queue.get(timeout=120) == expected
    process.join()
    assert process.exitcode == 0


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("compile", [hostjit.compile, partial(torch.compile, backend="hostjit")])
def test_what_threads_append_to_a_list_stays(compile: Any) -> None:
    """Also while other threads compile: nobody writes a list back as it was when a call began."""

    class Timed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)
            self.seconds: list[float] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            begin = time.perf_counter()
            y: torch.Tensor = self.layer(x)
            self.seconds.append(time.perf_counter() - begin)
            return y

    module = Timed()
    fast = compile(module)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(fast, torch.randn(1 + i % 5, 4)) for i in range(120)]
        for call in calls:
            call.result()
    assert len(module.seconds) == 120
