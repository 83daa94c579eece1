# SPDX-License-Identifier: Apache-2.0
"""Calls run on the caller's stream, in its order, beside other streams, graphs and threads."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable

import pytest
import torch
from beside_eager_on_gpu import assert_same
from gpu_device import DEVICE
from gpu_modules import make_module
from torch import Tensor

import hostjit

pytestmark = pytest.mark.skipif(DEVICE != "cuda", reason="CUDA streams")

# Cycles for which a stream is kept busy: some tenths of a second at any clock.
LONG = 400_000_000
LARGE = 1 << 20


def chain(x: Tensor) -> Tensor:
    """Have several intermediate tensors in memory: means are known before what follows."""
    for _ in range(8):
        x = x + (x - x.mean()).tanh() / 8 + x.amax() / 16
    return x


@pytest.fixture
def compiled(runtime: str) -> Callable[[Tensor], Tensor]:
    function = hostjit.compile(chain, runtime=runtime)
    with torch.no_grad():
        function(torch.ones(LARGE, device="cuda"))
        torch.cuda.synchronize()
    return function


@torch.no_grad()
def test_a_call_is_ordered_after_what_its_stream_does(compiled: Callable[[Tensor], Tensor]) -> None:
    side = torch.cuda.Stream()
    x = torch.zeros(LARGE, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        x.fill_(0.5)
        result = compiled(x)
        x.fill_(3)
        assert torch.cuda.current_stream() == side
    side.synchronize()
    assert_same(result, chain(torch.full_like(x, 0.5)))


@torch.no_grad()
def test_a_call_does_not_wait_for_other_streams(compiled: Callable[[Tensor], Tensor]) -> None:
    x = torch.full((LARGE,), 0.5, device="cuda")
    expected = chain(x)
    side, busy = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        compiled(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(busy):
        torch.cuda._sleep(4 * LONG)
    with torch.cuda.stream(side):
        result = compiled(x)
    side.synchronize()
    assert not busy.query()
    assert_same(result, expected)
    busy.synchronize()


@torch.no_grad()
def test_calls_on_two_streams_share_no_memory(compiled: Callable[[Tensor], Tensor]) -> None:
    """The first stream is busy when the second call runs: what the first needs must stay."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    inputs = [torch.rand(LARGE, device="cuda") for _ in streams]
    expected = [chain(x) for x in inputs]
    torch.cuda.synchronize()
    for _ in range(3):
        results = []
        for index, (stream, x) in enumerate(zip(streams, inputs, strict=True)):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(LONG // (1 + 3 * index))
                results.append(compiled(x))
        torch.cuda.synchronize()
        assert_same(results, expected)


@torch.no_grad()
def test_a_result_outlives_the_call_on_a_side_stream(compiled: Callable[[Tensor], Tensor]) -> None:
    side = torch.cuda.Stream()
    x = torch.rand(LARGE, device="cuda")
    expected = chain(chain(x))
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        first = compiled(x)
        second = compiled(first)
        del first
        others = [torch.full_like(x, -1) for _ in range(4)]
    side.synchronize()
    assert_same(second, expected)
    assert all(bool((other == -1).all()) for other in others)


@torch.no_grad()
def test_the_users_graph_holds_a_call(compiled: Callable[[Tensor], Tensor]) -> None:
    x = torch.rand(LARGE, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            compiled(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled(x) * 2
    for value in (0.25, -1.5):
        x.fill_(value)
        graph.replay()
        assert_same(result, chain(x) * 2)
    # A call outside has memory of its own.
    y = torch.rand_like(x)
    outside = compiled(y)
    graph.replay()
    assert_same(outside, chain(y))


def test_a_training_step_on_a_side_stream(runtime: str) -> None:
    module, x = make_module("block", "cuda")
    expected = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
    run = hostjit.compile(module, runtime=runtime)
    run(x).sum().backward()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        found = torch.autograd.grad(run(x).square().sum(), list(module.parameters()))
    side.synchronize()
    for ours, eager in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)


def test_threads_with_streams_of_their_own(runtime: str) -> None:
    function = hostjit.compile(chain, runtime=runtime)
    inputs = [torch.rand(size, device="cuda") for size in (1000, 1 << 16, 1000, 77) * 2]
    expected = [chain(x) for x in inputs]
    torch.cuda.synchronize()

    def work(index: int) -> list[Tensor]:
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            results = [function(inputs[index]) for _ in range(20)]
        stream.synchronize()
        return results

    with concurrent.futures.ThreadPoolExecutor(len(inputs)) as pool:
        for results, wanted in zip(pool.map(work, range(len(inputs))), expected, strict=True):
            for result in results:
                assert_same(result, wanted)


def branches(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Have two branches of several launches and products each, which meet, and one beside them."""
    first, second = x @ weight, x.tanh()
    for _ in range(4):
        first = (first - first.mean(0)).tanh() @ weight
        second = second + (second - second.amax(1, keepdim=True)).exp()
    return first + second, second.softmax(1)


@torch.no_grad()
@pytest.mark.parametrize("graphs", ["auto", "off"])
@pytest.mark.parametrize("streams", [2, 4])
def test_branches_on_streams_agree_with_one(runtime: str, streams: int, graphs: str) -> None:
    spread = hostjit.compile(branches, runtime=runtime, streams=streams, graphs=graphs)
    weight = torch.randn(512, 512, device="cuda") / 32
    side = torch.cuda.Stream()
    for call in range(12):
        x = torch.randn(512, 512, device="cuda")
        expected = branches(x, weight)
        torch.cuda.synchronize()
        with torch.cuda.stream(side if call % 3 == 2 else torch.cuda.current_stream()):
            before = torch.cuda.current_stream()
            torch.cuda._sleep(LONG // 100)
            results = spread(x, weight)
            x.fill_(torch.nan)
            assert torch.cuda.current_stream() == before
            copies = [result.clone() for result in results]
        del results
        torch.cuda.synchronize()
        for copy, wanted in zip(copies, expected, strict=True):
            torch.testing.assert_close(copy, wanted, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_branches_become_part_of_a_captured_graph() -> None:
    spread = hostjit.compile(branches, streams=3, graphs="off")
    x, weight = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda") / 32
    spread(x, weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = spread(x, weight)
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        for result, wanted in zip(results, branches(x, weight), strict=True):
            torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_profile_tells_the_time_of_the_device() -> None:
    compiled = hostjit.compile(chain)
    profile = compiled.profile(torch.ones(LARGE, device="cuda"), calls=5)
    times = [entry.device_nanoseconds for entry in profile.entries if entry.op == "launch_kernel"]
    assert times and all(time is not None and time > 500 for time in times)
    assert "device ns" in str(profile)
