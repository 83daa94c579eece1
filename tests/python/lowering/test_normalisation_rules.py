# SPDX-License-Identifier: Apache-2.0
"""Softmax and the norms against eager, with what is fused before and after them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_eager import RUNTIMES, check_compiled
from torch import nn

import hostjit

Tensor = torch.Tensor
HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def tolerances(dtype: torch.dtype) -> dict[str, float]:
    """Eager rounds to the half types between operators; kernels round results."""
    return {"rtol": 2e-2, "atol": 2e-2} if dtype in HALVES else {}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
def test_all_at_once(dtype: torch.dtype, runtime: str) -> None:
    def function(x: Tensor, w: Tensor, b: Tensor, c: Tensor) -> list[Any]:
        return [
            x.softmax(-1),
            x.softmax(1),
            x.log_softmax(0),
            x.flatten(1).log_softmax(1),
            F.layer_norm(x, (6,)),
            F.layer_norm(x, (8, 5, 6)),
            F.layer_norm(x, (6,), w, b),
            F.rms_norm(x, (6,), w),
            F.group_norm(x, 4),
            F.group_norm(x, 2, c, c - 1),
            F.group_norm(x, 8, c),
            F.instance_norm(x),
            F.batch_norm(x, c, c * c + 1),
            F.batch_norm(x, c, c * c + 1, c, c),
            F.normalize(x, dim=1),
            torch.native_layer_norm(x, (5, 6), None, None, 1e-3),
        ]

    x, w, b, c = (torch.randn(shape).to(dtype) for shape in ((3, 8, 5, 6), (6,), (6,), (8,)))
    check_compiled(function, x, w, b, c, runtime=runtime, **tolerances(dtype))
    other = x.to(memory_format=torch.channels_last)
    check_compiled(function, other, w, b, c, runtime=runtime, **tolerances(dtype))


def test_instance_norm_with_weights() -> None:
    """Its weights are repeated for each element of the batch, which is no kernel yet."""
    x, c = torch.randn(3, 8, 5, 6), torch.randn(8)
    check_compiled(lambda x, c: F.instance_norm(x, weight=c, bias=c * 2), x, c, fused=False)


def test_mixed_types() -> None:
    x = torch.randn(4, 16).bfloat16()
    w = torch.randn(16)
    check_compiled(lambda x, w: F.layer_norm(x, (16,), w, w), x, w, **tolerances(x.dtype))
    check_compiled(lambda x: x.softmax(1, dtype=torch.float32), x)


@pytest.mark.parametrize("other", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("own", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_types_of_parameters_that_eager_refuses_raise(own: torch.dtype, other: torch.dtype) -> None:
    """Parameters of other types are an error, but those of float32 beside elements of halves."""

    def by_rows(x: Tensor, w: Tensor) -> Tensor:
        return F.layer_norm(x, (4,), None, w)

    def by_groups(x: Tensor, w: Tensor) -> Tensor:
        return F.group_norm(x, 2, w)

    def by_batch(x: Tensor, w: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, w, w, training=True)

    def by_known_statistics(x: Tensor, w: Tensor) -> Tensor:
        return F.batch_norm(x, w, w)

    x, w = torch.randn(3, 4, 4).to(own), torch.rand(4).to(other)
    for function in (by_rows, by_groups, by_batch, by_known_statistics):
        compiled = hostjit.compile(function)
        try:
            expected = function(x, w)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error).partition("(")[0]):
                compiled(x, w)
        else:
            torch.testing.assert_close(compiled(x, w), expected, **tolerances(own))


@pytest.mark.parametrize("columns", [1, 5, 64, 3000, 20000])
def test_row_lengths(columns: int) -> None:
    """Rows kept on the stack, in the output, and not at all."""

    def function(x: Tensor) -> list[Tensor]:
        y = x.softmax(1)
        return [y, x.exp() / x.exp().sum(1, keepdim=True), F.layer_norm(x, (columns,))]

    check_compiled(function, torch.randn(3, columns))
    check_compiled(lambda x: x.softmax(0), torch.randn(columns, 3))
    check_compiled(lambda x: x.softmax(1), torch.randn(3, columns).bfloat16())


def test_rows_of_infinities() -> None:
    x = torch.randn(5, 33)
    x[1], x[2], x[3, 4] = -math.inf, math.inf, -math.inf
    x[4, 5] = math.nan
    check_compiled(lambda x: [x.softmax(1), x.log_softmax(1), x.softmax(0)], x)


@pytest.mark.parametrize("dim", [-1, 0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_log_softmax_of_half_types_is_eagers_to_the_last_bit(dtype: torch.dtype, dim: int) -> None:
    def function(x: Tensor) -> Tensor:
        return x.log_softmax(dim)

    torch.manual_seed(0)
    for shape in ((64, 10), (7, 1000), (3, 1), (5,)):
        x = (torch.randn(shape) * 2).to(dtype).requires_grad_()
        w = torch.randn(shape).to(dtype)
        found, expected = hostjit.compile(function)(x), function(x)
        assert torch.equal(found, expected)
        assert torch.equal(*(torch.autograd.grad(result, x, w)[0] for result in (found, expected)))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("shape", [(2, 8), (3, 4, 5), (2, 3, 4, 4)], ids=str)
def test_channels_are_normalised_by_eagers_products(shape: tuple[int, ...], runtime: str) -> None:
    def function(x: Tensor, mean: Tensor, variance: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
        return [
            F.batch_norm(x, mean, variance, w, b),
            F.batch_norm(x, mean, variance, w),
        ]

    channels = shape[1]
    w, b, mean = (torch.randn(channels).mul(2).round() for _ in range(3))
    w[0], b[0], w[1] = math.inf, 1.0, -math.inf
    variance = torch.zeros(channels)
    # Near the mean, where what is left are rounding errors, times 316.
    x = (mean * 1.1).view(-1, *[1] * (len(shape) - 2)).expand(shape).contiguous()
    check_compiled(function, x, mean, variance, w, b, runtime=runtime)
    x[0, 0] = mean[0]
    check_compiled(function, x, mean, variance, w, b, runtime=runtime)


def test_attention_weights() -> None:
    def function(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return scores.masked_fill(mask, float("-inf")).softmax(-1)

    mask = torch.ones(16, 16, dtype=torch.bool).triu(1)
    check_compiled(function, torch.randn(2, 3, 16, 8), torch.randn(2, 3, 16, 8), mask, fused=False)
    compiled = hostjit.compile(function)
    compiled(torch.randn(2, 3, 16, 8), torch.randn(2, 3, 16, 8), mask)
    assert "softmax" in compiled.host_ir()
    assert "aten::_softmax" not in compiled.host_ir()


class LayerNormMlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        update: Tensor = self.down(F.gelu(self.up(self.norm(x))))
        return x + update


@pytest.mark.parametrize("batch", [1, 7])
def test_a_layer_norm_mlp_makes_no_aten_call(batch: int) -> None:
    module = LayerNormMlp().eval()
    with torch.no_grad():
        check_compiled(module, torch.randn(batch, 64), rtol=1e-4, atol=1e-5)


def test_residual_and_norm_are_one_kernel() -> None:
    norm = nn.LayerNorm(32)

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = x + torch.relu(y)
        return total, norm(total).sigmoid()

    x, y = torch.randn(4, 32), torch.randn(4, 32)
    with torch.no_grad():
        check_compiled(function, x, y)
        compiled = hostjit.compile(function)
        compiled(x, y)
    assert compiled.host_ir().count("launch_kernel(") == 1
