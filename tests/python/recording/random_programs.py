# SPDX-License-Identifier: Apache-2.0
"""Random eager programs of a seed: views, writes in place, loops, branches, scalars, containers.

They take tensors of any sizes from two rows and four columns on, and of any one dtype.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["arguments", "make_program", "sizes_of", "written_by"]

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
    lambda a, b, k: a @ b.t() @ a * 0.02,
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
        a = a * 0.5 + b[step % len(b)]
        if step % 2:
            a -= k
    return a


def _accumulate(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    total = torch.zeros_like(a)
    for row in range(min(len(a), 4)):
        total[row] += a[row].sum() + b[row] * k
    return total


def _transposed(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    view = a.t()
    return (view * k + b.t()).t().contiguous()


def _noise(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    return a + torch.rand_like(b) * k


def _dtypes(a: torch.Tensor, b: torch.Tensor, k: float) -> torch.Tensor:
    return (a.double() * k + b.int()).to(a.dtype)


_STATEMENTS = (
    *_POINTWISE,
    *(_write_row, _write_view, _write_masked, _loop, _accumulate, _transposed, _noise, _dtypes),
)


def written_by(seed: int) -> str:
    """Return what a program writes of its arguments: "state", "input" or nothing."""
    return random.Random(f"writes {seed}").choices(("", "state", "input"), (6, 4, 2))[0]


def sizes_of(seed: int) -> tuple[int, int]:
    """Return the rows and columns of the tensors that a program is recorded with."""
    generator = random.Random(f"sizes {seed}")
    return generator.randint(2, 6), generator.randint(4, 9)


def make_program(seed: int) -> Callable[..., Any]:
    """Return a program of two tensors in a container, a tensor that it may change and a number."""
    generator = random.Random(seed)
    statements = [generator.choice(_STATEMENTS) for _ in range(generator.randint(3, 8))]
    operands = [(generator.randint(0, 9), generator.randint(0, 9)) for _ in statements]
    writes = written_by(seed)
    shape = generator.choice(("tuple", "dict", "one", "with argument"))
    constants = torch.randn(64, 16, generator=torch.Generator().manual_seed(seed))

    def program(pair: dict[str, list[torch.Tensor]], state: torch.Tensor, k: float) -> Any:
        constant = constants[: len(state), : state.shape[1]].to(state.dtype)
        values = [*pair["inputs"], state * 1, constant]
        for statement, (first, second) in zip(statements, operands, strict=True):
            a, b = values[first % len(values)], values[second % len(values)]
            values.append(statement(a, b, k))
        if writes == "state":
            state.mul_(0.9).add_(values[-1])
        if writes == "input":
            pair["inputs"][1][1:].add_(values[-1][:-1] * k)
        if shape == "one":
            return values[-1]
        if shape == "dict":
            return {"last": values[-1], "more": [values[-2].sum(), len(values)]}
        if shape == "with argument":
            return pair["inputs"][0], state, values[-1]
        return values[-1], (values[-1].t(), k)

    return program


def arguments(
    seed: int,
    call: int,
    rows: int | None = None,
    columns: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Any, ...]:
    """Return fresh data for a program, the same for the same arguments."""
    generator = torch.Generator().manual_seed(1000 * seed + call)
    sizes = rows or sizes_of(seed)[0], columns or sizes_of(seed)[1]

    def data() -> torch.Tensor:
        return torch.randn(sizes, generator=generator).to(dtype)

    return {"inputs": [data(), data()]}, data(), 0.5
