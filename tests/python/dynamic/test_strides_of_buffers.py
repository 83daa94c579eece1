# SPDX-License-Identifier: Apache-2.0
"""Parts of a buffer as arguments: one program for any length, with the strides of that buffer."""

from __future__ import annotations

import torch
from many_calls import check
from torch import Tensor

import hostjit

HEAD_SIZE = 8


def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, keys, values)


def test_a_cache_that_fills_is_one_program(runtime: str) -> None:
    cache = torch.randn(2, 1, 4, 64, HEAD_SIZE)

    def call(n: int) -> tuple[Tensor, ...]:
        return torch.randn(1, 4, 1, HEAD_SIZE), cache[0, :, :, :n], cache[1, :, :, :n]

    check(attend, map(call, range(5, 30)), programs=2, runtime=runtime)


def views(x: Tensor) -> tuple[Tensor, ...]:
    return x[:, 1:], x.t(), x.sin(), x.flatten()


def test_results_have_the_strides_of_the_buffer(runtime: str) -> None:
    buffer = torch.randn(6, 40)
    compiled = check(views, ((buffer[:, 2:n],) for n in range(5, 40)), 2, runtime=runtime)
    assert not compiled.static_reasons()


def test_another_buffer_is_another_program(runtime: str) -> None:
    def call(n: int) -> tuple[Tensor]:
        return (torch.randn(6, 50 if n < 20 or n % 2 else 60)[:, :n],)

    check(views, map(call, range(5, 40)), programs=3, runtime=runtime)


@torch.enable_grad()  # type: ignore[untyped-decorator]
def test_training(runtime: str) -> None:
    weight = torch.randn(6, 6, requires_grad=True)
    buffer = torch.randn(6, 40)

    def function(x: Tensor) -> Tensor:
        return (weight @ x).square().sum()

    compiled = hostjit.compile(function, runtime=runtime)
    for n in range(5, 20):
        (found,) = torch.autograd.grad(compiled(buffer[:, :n]), weight)
        (expected,) = torch.autograd.grad(function(buffer[:, :n]), weight)
        torch.testing.assert_close(found, expected)
    assert len(compiled.specializations) == 2
