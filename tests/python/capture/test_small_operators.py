# SPDX-License-Identifier: Apache-2.0
"""Operators of few elements that are taken apart on the CPU: nothing is left to ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import hostjit

Function = Callable[[Tensor, Tensor], Any]

CASES: dict[str, Function] = {
    "cross": lambda x, y: torch.linalg.cross(x, y),
    "cross along a dim": lambda x, y: torch.cross(x.mT, y.mT, dim=0),
    "cross with one": lambda x, y: torch.linalg.cross(x, y[:1]),
    "trace": lambda x, y: torch.trace(x),
    "diag_embed": lambda x, y: torch.diag_embed(x),
    "diag_embed aside": lambda x, y: torch.diag_embed(x, offset=1, dim1=0, dim2=2),
    "diag": lambda x, y: torch.diag(x[0]),
    "block_diag": lambda x, y: torch.block_diag(x, y[:2], x[0]),
    "rot90": lambda x, y: torch.rot90(x),
    "rot90 back": lambda x, y: torch.rot90(x, -1),
    "rot90 twice": lambda x, y: torch.rot90(x, 2) + 1,
    "huber_loss": lambda x, y: functional.huber_loss(x, y),
    "huber_loss of each": lambda x, y: functional.huber_loss(x, y, reduction="none", delta=0.5),
    "cdist": lambda x, y: torch.cdist(x, y),
    "cdist of batches": lambda x, y: torch.cdist(x[None], y.expand(2, 4, 3)),
    "cdist by absolute values": lambda x, y: torch.cdist(x, y, p=1),
    "cdist by the largest": lambda x, y: torch.cdist(x, y, p=torch.inf),
}


def _given(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64).to(dtype)
    return x, y


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str, runtime: str) -> None:
    given = _given(torch.float32)
    compiled = hostjit.compile(CASES[name], runtime=runtime)
    found, expected = compiled(*given), CASES[name](*given)
    torch.testing.assert_close(found, expected, check_stride=True)
    assert "aten_call" not in compiled.host_ir()


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    leaves = [x.requires_grad_() for x in _given(torch.float64)]

    def loss(x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = CASES[name](x, y)
        return (found * found.detach().cos()).sum()

    expected = torch.autograd.grad(loss(*leaves), leaves, allow_unused=True)
    found = torch.autograd.grad(hostjit.compile(loss)(*leaves), leaves, allow_unused=True)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", CASES)
def test_recorded(name: str) -> None:
    recorded = hostjit.capture(CASES[name], fallback=False)
    given = _given(torch.float32)
    for _ in range(3):
        torch.testing.assert_close(recorded(*given), CASES[name](*given), check_stride=True)


LARGE: dict[str, Callable[[Tensor], Tensor]] = {
    "cdist": lambda x: torch.cdist(x[:30], x[:30]),
    "trace": lambda x: torch.trace(x),
    "huber_loss": lambda x: functional.huber_loss(x, x + 2),
}


@pytest.mark.parametrize("name", LARGE)
def test_of_many_elements_are_left_to_aten(name: str) -> None:
    x = torch.randn(200, 100, generator=torch.Generator().manual_seed(0))
    compiled = hostjit.compile(LARGE[name], fallback=False)
    torch.testing.assert_close(compiled(x), LARGE[name](x))
    assert "aten_call" in compiled.host_ir()


def test_sizes_that_differ() -> None:
    compiled = hostjit.compile(lambda x: x * 2 + torch.trace(x), fallback=False)
    for size in (3, 4, 5, 1):
        x = torch.arange(float(size * size)).reshape(size, size)
        torch.testing.assert_close(compiled(x), x * 2 + torch.trace(x))
