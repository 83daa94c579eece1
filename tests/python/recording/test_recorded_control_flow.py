# SPDX-License-Identifier: Apache-2.0
"""Recordings that meet higher-order operators: what such an operator runs is in no recording."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

import hostjit


def chooses(x: Tensor) -> Tensor:
    result: Tensor = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
    return result


def iterates(x: Tensor) -> Tensor:
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1]


def walks(x: Tensor) -> Tensor:
    result: Tensor = map_rows(lambda row: row * 2, x)
    return result


def carries(x: Tensor) -> tuple[Tensor, Tensor]:
    result: tuple[Tensor, Tensor] = scan(lambda c, row: (c + row, c * row), x[0] * 0, x)
    return result


def attends(x: Tensor) -> Tensor:
    heads = x[None, None]
    result: Tensor = flex_attention(heads, heads, heads, score_mod=lambda s, *_: s * 2)
    return result


def breaks(x: Tensor) -> Tensor:
    for _ in range(2):
        if x.sum() > 1e6:
            break
        x = chooses(x)
    return x


@pytest.mark.parametrize("function", [chooses, iterates, walks, carries, attends, breaks])
@pytest.mark.parametrize("wrap", [hostjit.capture, hostjit.compile])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
@pytest.mark.filterwarnings("ignore:hostjit. .* compile answers all calls")
def test_calls_are_as_eager(
    wrap: Callable[..., Callable[..., Tensor]], function: Callable[..., Tensor]
) -> None:
    torch.compiler.reset()
    compiled = wrap(function)
    torch.manual_seed(0)
    x = torch.rand(3, 16)
    with torch.no_grad():
        for given in (x, -x, x * 2, -x):
            torch.testing.assert_close(compiled(given), function(given))


def test_a_captured_function_is_compiled_then() -> None:
    compiled = hostjit.capture(chooses)
    x = torch.ones(3)
    with torch.no_grad():
        compiled(x)
        with pytest.warns(UserWarning, match="calls cond.*compile answers all calls"):
            compiled(x)


def test_the_stance_of_the_compiler_is_as_before() -> None:
    compiled = hostjit.capture(chooses)
    other = torch.compile(torch.sin, backend=(counter := CompileCounter()))
    x = torch.ones(3)
    with torch.no_grad():
        compiled(x), compiled(x)
        torch.testing.assert_close(other(x), x.sin())
    assert counter.frame_count == 1
