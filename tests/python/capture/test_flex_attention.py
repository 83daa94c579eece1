# SPDX-License-Identifier: Apache-2.0
"""`flex_attention`: one program, and eager's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

BIAS = torch.linspace(-1, 1, 64).requires_grad_()


def with_distance(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return score + 0.1 * (k - q) * (h + 1)


def with_bias(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return torch.tanh(score + BIAS[q])


def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


def leaves_rows_out(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q > 2) & (k < q)


def masked(mask: Callable[..., Tensor]) -> Any:
    return create_block_mask(mask, None, None, 16, 16, device="cpu", BLOCK_SIZE=8)


CAUSAL, ROWS_OUT = masked(causal), masked(leaves_rows_out)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "scores": lambda q, k, v: flex_attention(q, k, v, score_mod=with_distance),
    "a bias": lambda q, k, v: flex_attention(q, k, v, score_mod=with_bias, scale=0.3),
    "a mask": lambda q, k, v: flex_attention(
        q.transpose(1, 2).contiguous().transpose(1, 2), k, v, block_mask=CAUSAL
    ),
    "both": lambda q, k, v: (
        flex_attention(q, k, v, score_mod=with_bias, block_mask=ROWS_OUT).relu() * 2
    ),
    "groups": lambda q, k, v: flex_attention(
        q, k[:, :2], v[:, :2], score_mod=with_distance, block_mask=CAUSAL, enable_gqa=True
    ),
}


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_eager(name: str, runtime: str) -> None:
    function = FUNCTIONS[name]
    torch.manual_seed(0)
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    with torch.no_grad():
        for _ in range(2):
            inputs = [torch.randn(2, 4, 16, 8) for _ in range(3)]
            results = [call(*inputs) for call in (compiled, function)]
            torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5, check_stride=True)
    assert len(compiled.specializations) == 1


@pytest.mark.filterwarnings("ignore:hostjit")
def test_gradients_are_refused_on_the_cpu() -> None:
    function = FUNCTIONS["scores"]
    inputs = [torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3)]
    for call in (hostjit.compile(function), function):
        with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
            call(*inputs)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_under_autocast() -> None:
    function = FUNCTIONS["scores"]
    compiled = hostjit.compile(function)
    inputs = [torch.randn(2, 4, 16, 8) for _ in range(3)]
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), function(*inputs))
