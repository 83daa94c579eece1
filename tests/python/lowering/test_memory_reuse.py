# SPDX-License-Identifier: Apache-2.0
"""Buffers that are written where a kernel read the one before: the plan, and the results."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from against_eager import RUNTIMES, check_compiled
from torch import Tensor

import hostjit


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def chain(x: Tensor, weight: Tensor) -> Tensor:
    for _ in range(3):
        x = torch.tanh(x @ weight)
    return x @ weight


def test_a_kernel_writes_where_it_reads() -> None:
    x, weight = torch.randn(8, 16), torch.randn(16, 16) / 4
    fast = hostjit.compile(chain)
    fast(x, weight)
    # A product reads one buffer and writes another; each kernel needs no third.
    assert "arena 1024 bytes, lower bound 1024 bytes (1.000x)" in fast.memory_plan()
    assert "in_place=[0, 0]" in fast.host_ir()
    assert "in_place.1.0" in fast.llvm_ir(optimized=False)


def test_one_kernel_in_place_and_not() -> None:
    def twice(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.tanh(x @ weight)
        return torch.tanh(first @ weight), torch.tanh(first @ weight @ weight) @ weight

    x, weight = torch.randn(8, 16), torch.randn(16, 16) / 4
    for runtime in RUNTIMES:
        check_compiled(twice, x, weight, runtime=runtime)


def test_threads_share_a_kernel_in_place() -> None:
    x, weight = torch.randn(2048, 256), torch.randn(256, 256) / 16
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            check_compiled(chain, x, weight, rtol=1e-4, atol=1e-4)
    finally:
        torch.set_num_threads(threads)


UNARY: list[Callable[[Tensor], Tensor]] = [
    torch.tanh,
    torch.sigmoid,
    lambda x: x * 0.5 + 1,
    lambda x: x.t(),
    lambda x: x.flip(0),
    lambda x: x[:1] + x,
    lambda x: x.to(torch.int32).to(torch.float32) * 0.25,
    lambda x: x - x.mean(1, keepdim=True),
    lambda x: torch.softmax(x, -1),
]
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add,
    torch.maximum,
    lambda x, y: x * y.sigmoid(),
    lambda x, y: torch.where(x > y, x, y * 0.5),
    lambda x, y: x + y.t(),
    lambda x, y: (x @ y) / 8,
    lambda x, y: torch.tanh(x @ y),
    lambda x, y: torch.cumsum(x, 0) / 8 + y,
]


@pytest.mark.parametrize("seed", range(24))
def test_random_graphs_agree(seed: int) -> None:
    """Graphs over one shape, so that every buffer could take over any other."""
    choose = random.Random(seed)
    size = choose.choice([3, 8, 17])
    steps = [
        (choose.random() < 0.4, choose.randrange(8), choose.random() ** 2, choose.random() ** 2)
        for _ in range(choose.choice([6, 12, 20]))
    ]

    def graph(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        values = [x, y]
        for is_unary, which, first, second in steps:
            # Recent values more often, so that lives end.
            a, b = (values[-1 - int(place * len(values))] for place in (first, second))
            values.append(UNARY[which](a) if is_unary else BINARY[which](a, b))
        return values[-1], values[-2]

    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(size, size, generator=generator) for _ in range(2)]
    for runtime in RUNTIMES:
        check_compiled(graph, *inputs, runtime=runtime, fused=False, rtol=1e-4, atol=1e-4)
