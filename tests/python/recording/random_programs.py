# SPDX-License-Identifier: Apache-2.0
"""Random eager programs of a seed: views, writes in place, loops, branches, scalars, containers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["arguments", "make_program"]

_ROWS, _COLUMNS = 4, 6

_POINTWISE: tuple[Callable[..., torch.Tensor], ...] = (
    lambda a, b, k: a + b,
    lambda a, b, k: a * b - k,
    lambda a, b, k: torch.where(a > b, a, b * k),
    lambda a, b, k: a.tanh() + b.sigmoid(),
    lambda a, b, k: torch.maximum(a, b).clamp(-2, 2),
    lambda a, b, k: (a - b).abs().sqrt(),
    lambda a, b, k: a.softmax(-1) * b,
    lambda a, b, k: torch.layer_norm(a, a.shape[-1:]) + b,
    lambda a, b, k: a - b.mean(0, keepdim=True),
    lambda a, b, k: a @ b.t() @ a * 0.1,
    lambda a, b, k: torch.cat([a, b], 1)[:, ::2],
    lambda a, b, k: a.cumsum(1) * 0.1 + b,
    lambda a, b, k: a.roll(1, 0) + b.flip(1),
    lambda a, b, k: (a > 0).to(a.dtype) * b,
)


def _write_row(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    a = a.clone()
    a[1] = b[0] * k
    return a


def _write_view(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    a = a * 1
    a.view(-1)[::3].add_(k)
    a[:, 1:3].mul_(b[:, :2])
    return a


def _write_masked(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    a = a + 0
    a[a > k] = 0.5
    return a + b


def _loop(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    for step in range(3):
        a = a * 0.5 + b[step % _ROWS]
        if step % 2:
            a -= k
    return a


def _accumulate(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    total = torch.zeros_like(a)
    for row in range(_ROWS):
        total[row] += a[row].sum() + b[row] * k
    return total


def _transposed(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    view = a.t()
    return (view * k + b.t()).t().contiguous()


def _noise(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    return a + torch.rand_like(b) * k


def _dtypes(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    return (a.double() * k + b.int()).float()


_STATEMENTS = (
    *_POINTWISE,
    *(_write_row, _write_view, _write_masked, _loop, _accumulate, _transposed, _noise, _dtypes),
)


def make_program(seed: int, rows: int = _ROWS) -> Callable[..., Any]:
    """Return a program of two tensors in a container, a tensor that it may change and a number."""
    generator = random.Random(seed)
    statements = [generator.choice(_STATEMENTS) for _ in range(generator.randint(3, 8))]
    operands = [(generator.randint(0, 9), generator.randint(0, 9)) for _ in statements]
    writes = generator.random() < 0.4
    shape = generator.choice(("tuple", "dict", "one", "with argument"))
    constant = torch.randn(rows, _COLUMNS, generator=torch.Generator().manual_seed(seed))

    def program(pair: dict[str, list[torch.Tensor]], state: torch.Tensor, k: float) -> Any:
        values = [*pair["inputs"], state * 1, constant]
        for statement, (first, second) in zip(statements, operands, strict=True):
            a, b = values[first % len(values)], values[second % len(values)]
            values.append(statement(a, b, k))
        if writes:
            state.mul_(0.9).add_(values[-1])
        if shape == "one":
            return values[-1]
        if shape == "dict":
            return {"last": values[-1], "more": [values[-2].sum(), len(values)]}
        if shape == "with argument":
            return pair["inputs"][0], state, values[-1]
        return values[-1], (values[-1].t(), k)

    return program


def arguments(seed: int, call: int, rows: int = _ROWS) -> tuple[Any, ...]:
    """Return fresh data for a program."""
    generator = torch.Generator().manual_seed(1000 * seed + call)

    def data() -> torch.Tensor:
        return torch.randn(rows, _COLUMNS, generator=generator)

    return {"inputs": [data(), data()]}, data(), 0.5
