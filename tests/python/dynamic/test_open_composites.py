# SPDX-License-Identifier: Apache-2.0
"""Operators whose C++ code takes sizes for numbers, and ranges of open numbers: any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import many_calls
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import hostjit

SIZES = [(4, 6), (5, 7), (7, 7), (13, 4), (6, 31), (3, 5)]
FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "take_along_dim": lambda x: x.take_along_dim(x.argsort(1), 1),
    "take_along_dim, broadcast": lambda x: torch.take_along_dim(
        x[None], x[:1].argsort(-1)[None], -1
    ),
    "take_along_dim, from the end": lambda x: x.take_along_dim(x.argsort(1) - x.shape[1], 1),
    "take_along_dim, flat": lambda x: x.take_along_dim(x.argmax()[None]),
    "max_pool1d": lambda x: functional.max_pool1d(x, 2),
    "max_pool1d, a batch": lambda x: functional.max_pool1d(x[None], 3, 1, 1, ceil_mode=True),
    "max_pool1d, across": lambda x: functional.max_pool1d(
        x.expand(2, -1, -1).transpose(1, 2), 2, 1
    ),
    "max_pool1d with indices": lambda x: functional.max_pool1d(x, 2, return_indices=True),
    "adaptive_avg_pool1d": lambda x: functional.adaptive_avg_pool1d(x, x.shape[1] // 2),
    "adaptive_avg_pool1d, a batch": lambda x: functional.adaptive_avg_pool1d(
        x.expand(2, -1, -1).transpose(1, 2), x.shape[0] + 2
    ),
    "kron": lambda x: torch.kron(x, torch.ones(3)),
    "kron of open sizes": lambda x: torch.kron(x, x[:2]),
    "vander": lambda x: torch.vander(x[0]) * 2,
    "vander, increasing": lambda x: torch.vander(x[:, 0], increasing=True),
    "vander of a few columns": lambda x: torch.vander(x[0], 3) + x.sum(),
    "linspace": lambda x: torch.linspace(0, 1, x.shape[0]) + x.sum(),
    "linspace, down": lambda x: torch.linspace(x.shape[1], -3.5, steps=x.shape[0]),
    "linspace of float64": lambda x: torch.linspace(-1, 1, x.shape[1] + 1, dtype=torch.float64),
}


def programs_of(name: str) -> int:
    """Pooling along the last dim has two before torch 2.12."""
    has_two = name in ("max_pool1d", "max_pool1d with indices") and torch.__version__ < (2, 12)
    return 2 if has_two else 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_size(name: str, runtime: str) -> None:
    calls = [(torch.randn(n, m),) for n, m in SIZES]
    programs = programs_of(name)
    many_calls.check(FUNCTIONS[name], calls, programs=programs, dynamic=True, runtime=runtime)


# Eager raises for `vander` with gradients.
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if not n.startswith(("linspace", "vander"))])
def test_gradients_at_any_size(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = hostjit.compile(function, dynamic=True, fallback=False)
    with torch.enable_grad():
        for n, m in SIZES:
            x = torch.randn(n, m, requires_grad=True)
            gradients = []
            for call in (compiled, function):
                result = call(x)
                result = result[0] if isinstance(result, tuple) else result
                gradients += torch.autograd.grad(result.square().sum(), x)
            torch.testing.assert_close(*gradients)
    assert len(compiled.specializations) == programs_of(name)


def test_ends_of_linspace_that_vary() -> None:
    def function(start: float, end: float, steps: int) -> Tensor:
        return torch.linspace(start, end, steps) * 2

    calls = [(0.5, 2.5, 4), (-1.5, 3.25, 5), (7.5, 0.25, 9), (0.5, 0.5, 30)]
    compiled = many_calls.check(function, calls, programs=2)
    for steps in (1, 0):
        torch.testing.assert_close(compiled(0.5, 2.5, steps), function(0.5, 2.5, steps))
    with pytest.raises(RuntimeError, match="number of steps must be non-negative"):
        compiled(0.5, 2.5, -1)


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "dtype": lambda x: x.take_along_dim(x.argsort(1).int(), 1),
    "dim": lambda x: x.take_along_dim(x.argsort(1), 2),
    "rank": lambda x: x.take_along_dim(x.argmax(1), 1),
    "sizes": lambda x: x.take_along_dim(x.argsort(1).t(), 1),
    "kernel": lambda x: functional.max_pool1d(x, x.shape[1] + 1),
    "padding": lambda x: functional.max_pool1d(x, 2, padding=2),
    "no output": lambda x: functional.adaptive_avg_pool1d(x, x.shape[1] - 8),
    "four dims": lambda x: functional.adaptive_avg_pool1d(x[None, None], x.shape[1]),
    "one dim": lambda x: functional.max_pool1d(x[0], 2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses(name: str) -> None:
    function = REFUSED[name]
    compiled = hostjit.compile(function, dynamic=True)
    for n, m in SIZES:
        x = torch.randn(n, m)
        try:
            expected = function(x)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), expected)
