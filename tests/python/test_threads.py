# SPDX-License-Identifier: Apache-2.0
"""Large work is shared with PyTorch's intra-op threads, and the answer does not depend on them."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn import functional

import hostjit


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * torch.sigmoid(y) + x


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("num_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(1 << 16,), (65537,), (300, 1000), (3, 100_003), (2, 3, 30_000)])
def test_the_result_is_that_of_one_thread(
    shape: tuple[int, ...], num_threads: int, runtime: str
) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(shape), torch.randn(shape[-1])
    fast = hostjit.compile(gate, runtime=runtime)
    torch.set_num_threads(1)
    expected = fast(x, y)
    assert "grid=" in fast.host_ir()
    torch.set_num_threads(num_threads)
    assert torch.equal(fast(x, y), expected)
    torch.testing.assert_close(expected, gate(x, y))


def test_small_work_stays_in_one_thread() -> None:
    fast = hostjit.compile(gate)
    fast(torch.randn(64), torch.randn(64))
    assert "grid=" not in fast.host_ir()


def test_broadcast_columns_are_split_too() -> None:
    """The split dimension need not be the first of the tensor."""
    torch.set_num_threads(2)
    x, y = torch.randn(3, 50_000), torch.randn(3, 1)
    fast = hostjit.compile(gate)
    torch.testing.assert_close(fast(x, y), gate(x, y))


@pytest.mark.parametrize("shape", [(515, 1027), (1027, 130), (3, 301, 517)])
def test_tiles_that_overlap_are_shared(shape: tuple[int, ...]) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.mT) * y + y

    torch.manual_seed(0)
    x, y = torch.randn(shape), torch.randn(*shape[:-2], shape[-1], shape[-2])
    fast = hostjit.compile(f)
    torch.set_num_threads(1)
    expected = fast(x, y)
    torch.testing.assert_close(expected, f(x, y))
    assert "grid=" in fast.host_ir()
    for num_threads in (2, 3, 7):
        torch.set_num_threads(num_threads)
        assert torch.equal(fast(x, y), expected)


@pytest.mark.parametrize(
    ("target", "shape"), [(gate, (1 << 16,)), (torch.mm, (200, 200))], ids=["kernel", "product"]
)
def test_several_callers_at_once(
    target: Callable[..., torch.Tensor], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(2)
    fast = hostjit.compile(target)
    x, y = torch.randn(shape), torch.randn(shape)
    expected = fast(x, y)
    wrong: list[int] = []

    def call() -> None:
        torch.set_num_threads(2)
        for round_ in range(50):
            if not torch.equal(fast(x, y), expected):
                wrong.append(round_)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def normalise(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.softmax(-1), x.sum(0), x.var(-1), x.softmax(0)]


@pytest.mark.parametrize("num_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(300, 1000), (5, 100_003), (2000, 256), (3, 50, 700)])
def test_rows_are_shared(shape: tuple[int, ...], num_threads: int) -> None:
    torch.manual_seed(0)
    x = torch.rand(shape)
    fast = hostjit.compile(normalise)
    torch.set_num_threads(1)
    expected = fast(x)
    assert "grid=" in fast.host_ir()
    torch.testing.assert_close(expected, normalise(x))
    torch.set_num_threads(num_threads)
    for one, other in zip(fast(x), expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("shape", [(1 << 20,), (1000, 300), (3, 100_000)])
def test_one_row_is_shared(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)

    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        loss = ((x - y) ** 2).mean().sqrt()
        return [x.sum(), x.max(), loss, x.exp(), x.exp().sum() * y.flatten()[0]]

    x, y = torch.rand(shape), torch.rand(shape)
    torch.set_num_threads(1)
    fast = hostjit.compile(function)
    expected = fast(x, y)
    torch.testing.assert_close(expected, function(x, y))
    assert "grid=" in fast.host_ir()
    assert "_end" in fast.host_ir()
    torch.set_num_threads(3)
    for one, other in zip(fast(x, y), expected, strict=True):
        assert torch.equal(one, other)


def test_a_row_that_cannot_be_divided_stays_in_one_thread() -> None:
    fast = hostjit.compile(torch.sum)
    x = torch.rand(1_000_003)
    torch.testing.assert_close(fast(x), x.sum())
    assert "grid=" not in fast.host_ir()


@contextlib.contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Run `work` in another thread, as soon as this one releases the GIL: nothing else lets it."""
    go = threading.Event()
    other = threading.Thread(target=lambda: (go.wait(), work()))
    other.start()
    before = sys.getswitchinterval()
    sys.setswitchinterval(100.0)
    try:
        go.set()
        yield
    finally:
        sys.setswitchinterval(before)
        other.join()


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_long_calls_let_other_threads_run(runtime: str) -> None:
    torch.set_num_threads(1)
    x = torch.randn(1 << 20)
    fast = hostjit.compile(gate, runtime=runtime)
    fast(x, x)
    seen: list[str] = []
    with beside(lambda: seen.append("other")):
        calls = 0
        while not seen and calls < 1000:
            fast(x, x)
            calls += 1
        assert seen


def test_an_input_may_go_away_during_a_call() -> None:
    torch.set_num_threads(1)

    def from_list(parts: list[torch.Tensor]) -> torch.Tensor:
        return gate(parts[0], parts[1])

    fast = hostjit.compile(from_list)
    parts = [torch.ones(1 << 20), torch.ones(1 << 20)]
    expected = fast(parts)
    with beside(parts.clear):
        result = fast(parts)
    assert torch.equal(result, expected)


@pytest.mark.parametrize("num_threads", [2, 3, 7])
@pytest.mark.parametrize(
    "shape", [(256, 256, 256), (65, 130, 700), (1, 800, 1001), (900, 300, 19), (64, 576, 196)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_are_shared(
    shape: tuple[int, int, int], num_threads: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    m, k, n = shape

    def products(
        x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> list[torch.Tensor]:
        return [x @ y, functional.linear(x, weight, bias), y.T @ x.T]

    operands = [torch.randn(size, dtype=dtype) for size in ((m, k), (k, n), (n, k), (n,))]
    torch.set_num_threads(1)
    fast = hostjit.compile(products)
    expected = fast(*operands)
    for one, other in zip(expected, products(*operands), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=k * torch.finfo(dtype).eps * 8)
    torch.set_num_threads(num_threads)
    for one, other in zip(fast(*operands), expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("batch", [3, 40])
def test_batches_of_products_are_shared(batch: int) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(batch, 129, 65), torch.randn(batch, 65, 130)
    torch.set_num_threads(1)
    fast = hostjit.compile(torch.bmm)
    expected = fast(x, y)
    torch.testing.assert_close(expected, torch.bmm(x, y), rtol=0.0, atol=1e-4)
    for num_threads in (2, 3, 7):
        torch.set_num_threads(num_threads)
        assert torch.equal(fast(x, y), expected)
