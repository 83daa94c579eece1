# SPDX-License-Identifier: Apache-2.0
"""Few long rows, which are split into parts for more blocks than there are rows."""

from __future__ import annotations

import pytest
import torch
from cuda_families import layer_norm, softmax
from emulation import emulated
from mcjit import TORCH_DTYPES

from hostjit.kernels import DType, KernelBuilder, PointwiseKernel
from hostjit.kernels.cuda import split_long_rows
from hostjit.kernels.sizes import Symbol, as_size

F32 = DType.F32


def run(kernel: PointwiseKernel, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> int:
    """Run what a kernel is split into; returns the number of its steps."""
    split = split_long_rows(kernel)
    assert split is not None
    temporaries = [
        torch.empty(count, dtype=TORCH_DTYPES[dtype]) for dtype, count in split.temporaries
    ]
    buffers = {"input": inputs, "output": outputs, "temporary": temporaries}
    kernels = emulated(step.kernel for step in split.steps)
    for step, one in zip(split.steps, kernels, strict=True):
        one(*(buffers[buffer.kind][buffer.place] for buffer in (*step.inputs, *step.outputs)))
    return len(split.steps)


def test_a_sum_of_everything() -> None:
    x, out = torch.randn(1000, 300), torch.empty(())
    builder = KernelBuilder("mean", x.shape, 2)
    total = builder.reduce("sum", builder.load(builder.input(F32), (300, 1)))
    mean = builder.apply("div", total, builder.constant(F32, x.numel()))
    builder.store(builder.output(F32), mean, (0, 0))
    assert run(builder.build(), [x], [out]) == 2
    torch.testing.assert_close(out, x.mean())


def test_sums_of_columns() -> None:
    x, out = torch.randn(8192, 64), torch.empty(64)
    builder = KernelBuilder("columns", (64, 8192), 1)
    total = builder.reduce("sum", builder.load(builder.input(F32), (1, 64)))
    builder.store(builder.output(F32), total, (1, 0))
    assert run(builder.build(), [x], [out]) == 2
    torch.testing.assert_close(out, x.sum(0), rtol=1e-4, atol=1e-4)


def test_a_softmax_of_two_rows() -> None:
    x = torch.randn(2, 1 << 16)
    out, largest = torch.empty_like(x), torch.empty(2)
    assert run(softmax("softmax", (2, 1 << 16), (1 << 16, 1)), [x], [out, largest]) == 5
    torch.testing.assert_close(out, x.softmax(1))
    assert torch.equal(largest, x.amax(1))


def test_a_norm_with_what_is_written_before_it() -> None:
    x, weight, bias = torch.randn(2, 1 << 16), torch.randn(1 << 16), torch.randn(1 << 16)
    out = torch.empty_like(x)
    kernel = layer_norm("norm", 2, 1 << 16, F32)
    assert run(kernel, [x, weight, bias], [out]) == 5
    expected = torch.nn.functional.layer_norm(x, (1 << 16,), weight, bias)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


def test_elements_beside_a_sum() -> None:
    x, y = torch.randn(1 << 18), torch.randn(3)
    out, total = torch.empty_like(x), torch.empty(())
    builder = KernelBuilder("both", (1 << 18,), 1)
    value = builder.apply("tanh", builder.load(builder.input(F32), (1,)))
    builder.store(builder.output(F32), value, (1,))
    shift = builder.load(builder.input(F32), (0,), offset=1)
    total_of_row = builder.apply("add", builder.reduce("sum", value), shift)
    builder.store(builder.output(F32), total_of_row, (0,))
    assert run(builder.build(), [x, y], [out, total]) == 2
    torch.testing.assert_close(out, x.tanh())
    torch.testing.assert_close(total, x.tanh().sum() + y[1], rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("shape", [(4096, 4096), (2, 1000), (1, 131101)])
def test_one_launch_is_enough_for_many_rows_and_short_or_prime_ones(shape: tuple[int, int]) -> None:
    assert split_long_rows(softmax("softmax", shape, (shape[1], 1))) is None


def test_sizes_of_the_call_are_not_split() -> None:
    n = as_size(Symbol("n"))
    assert split_long_rows(softmax("softmax", (1, n), (n, 1))) is None
