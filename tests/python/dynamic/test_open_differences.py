# SPDX-License-Identifier: Apache-2.0
"""Norms of matrices, cross entropy, differences and grids, whose C++ code fixes sizes: any size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import many_calls
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import hostjit

SIZES = [(4, 6), (5, 7), (7, 7), (13, 4), (6, 31), (8, 5)]
matrix_norm = torch.linalg.matrix_norm


def _places(x: Tensor, dim: int) -> Tensor:
    return x.abs().sum(1 - dim).cumsum(0)


def _probabilities(x: Tensor, **options: Any) -> Tensor:
    return functional.cross_entropy(x, x.abs().softmax(1), **options)


def _classes(x: Tensor, **options: Any) -> Tensor:
    target = x.detach().argmin(1)
    return functional.cross_entropy(x, target, label_smoothing=0.2, **options)


def _grid(x: Tensor, *size: int, align_corners: bool = False) -> Tensor:
    theta = x[:2, :3].expand(2, 2, 3) if len(size) == 2 else x[:3, :4].expand(2, 3, 4)
    return functional.affine_grid(theta, [2, 3, *size], align_corners=align_corners)


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "norm 1": lambda x: matrix_norm(x, 1),
    "norm -1 of a batch": lambda x: matrix_norm(x.expand(3, -1, -1), -1, (2, 0), keepdim=True),
    "norm inf": lambda x: matrix_norm(x, math.inf, keepdim=True),
    "norm -inf": lambda x: matrix_norm(x[None], -math.inf, (1, 2), dtype=torch.float64),
    "norm 2": lambda x: torch.linalg.norm(x, 2, (1, 0)),
    "norm -2": lambda x: matrix_norm(x[None], -2, (0, 2), keepdim=True),
    "norms of complex numbers": lambda x: [
        matrix_norm(torch.complex(x, x + 1), order) for order in (1, -math.inf, 2)
    ],
    "cond": lambda x: matrix_norm(x.mT @ x + x.shape[1] * torch.eye(x.shape[1]), 1),
    "probabilities": _probabilities,
    "probabilities, smooth": lambda x: _probabilities(x, label_smoothing=0.1, reduction="sum"),
    "probabilities, weights": lambda x: _probabilities(x, weight=x.detach()[0].abs()),
    "probabilities, each": lambda x: _probabilities(
        x, weight=x.detach()[0], label_smoothing=0.1, reduction="none"
    ),
    "probabilities of a vector": lambda x: functional.cross_entropy(x[0], x[1].softmax(0)),
    "classes": _classes,
    "classes, weights": lambda x: _classes(x, weight=x.detach()[0].abs()),
    "classes, each": lambda x: _classes(x, reduction="none", ignore_index=1),
    "gradient": lambda x: torch.gradient(x),
    "gradient, spacing": lambda x: torch.gradient(x, spacing=0.5, edge_order=2),
    "gradient, spacings": lambda x: torch.gradient(x, spacing=[0.5, 3.0]),
    "gradient, a dim": lambda x: torch.gradient(x, dim=-1, edge_order=2)[0],
    "gradient, dims": lambda x: torch.gradient(x, dim=(1, 0), spacing=[2, 0.5]),
    "gradient, places": lambda x: torch.gradient(x, spacing=(_places(x, 0), _places(x, 1))),
    "gradient, places of a dim": lambda x: torch.gradient(
        x, dim=(1,), spacing=(_places(x, 1),), edge_order=2
    ),
    "grid": lambda x: _grid(x, x.shape[0], x.shape[1] - 1),
    "grid, corners": lambda x: _grid(x, len(x), len(x), align_corners=True),
    "grid of a volume": lambda x: _grid(x, 3, x.shape[0], x.shape[1]),
    "grid and samples": lambda x: functional.grid_sample(
        x.expand(2, 3, -1, -1), _grid(x, *x.shape), align_corners=False
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_size(name: str, runtime: str) -> None:
    calls = [(torch.randn(n, m),) for n, m in SIZES]
    many_calls.check(FUNCTIONS[name], calls, programs=1, dynamic=True, runtime=runtime)


# Derivatives of singular values depend on whether a matrix is square.
@pytest.mark.parametrize(
    "name", [n for n in FUNCTIONS if not n.startswith(("norm 2", "norm -2", "norms"))]
)
@torch.enable_grad()
def test_gradients_at_any_size(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = hostjit.compile(function, dynamic=True, fallback=False)
    for n, m in SIZES:
        x = torch.randn(n, m, requires_grad=True)
        gradients = []
        for call in (compiled, function):
            result = call(x)
            parts = result if isinstance(result, Sequence) else [result]
            gradients += torch.autograd.grad(sum(part.square().sum() for part in parts), x)
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)
    assert len(compiled.specializations) == 1


def test_gradient_of_integers() -> None:
    calls = [(torch.randint(9, (n, m)),) for n, m in SIZES]
    many_calls.check(lambda x: torch.gradient(x, spacing=2), calls, programs=1, dynamic=True)


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "order": lambda x: matrix_norm(x, 3),
    "same dims": lambda x: matrix_norm(x, 1, (1, -1)),
    "integers": lambda x: matrix_norm(x.long(), 1),
    "narrower": lambda x: matrix_norm(x, 2, dtype=torch.float16),
    "narrower than double": lambda x: matrix_norm(x.double(), 2, dtype=torch.float32),
    "real of complex": lambda x: matrix_norm(torch.complex(x, x), 1, dtype=torch.float64),
    "edges": lambda x: torch.gradient(x, edge_order=3),
    "too few": lambda x: torch.gradient(x[: x.shape[0] - 5], dim=0),
    "bytes": lambda x: torch.gradient(x.byte()),
    "spacings": lambda x: torch.gradient(x, spacing=[1.0, 2.0, 3.0]),
    "probabilities": lambda x: functional.cross_entropy(x, x[1:]),
    "weights": lambda x: functional.cross_entropy(x, x, x[:, 0]),
    "integers as probabilities": lambda x: functional.cross_entropy(x, x.long()),
}


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses(name: str) -> None:
    function = REFUSED[name]
    compiled = hostjit.compile(function, dynamic=True)
    for n, m in [*SIZES, (6, 6), (5, 5)]:
        x = torch.randn(n, m)
        try:
            expected = function(x)
        except (RuntimeError, ValueError, IndexError) as error:
            with pytest.raises(type(error)):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), expected)
