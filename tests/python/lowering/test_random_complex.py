# SPDX-License-Identifier: Apache-2.0
"""Programs of random operators on complex tensors compute what eager mode does."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from against_eager import RUNTIMES
from torch import Tensor

import hostjit

DTYPES = (torch.complex64, torch.complex128)
SHAPES = ((5,), (4, 6), (3, 1), (2, 3, 4), (1, 7))
# Of a complex tensor, and another one that may be real.
OPERATORS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda z, w: z * w,
    lambda z, w: z + w,
    lambda z, w: z - w,
    lambda z, w: z / (w.abs() + 1),
    lambda z, w: z.conj() * 1,
    lambda z, w: z.real,
    lambda z, w: z.imag,
    lambda z, w: z.abs(),
    lambda z, w: torch.complex(z.real, z.imag * 2),
    lambda z, w: z.transpose(0, -1),
    lambda z, w: z.reshape(-1)[: z.numel() // 2].clone(),
    lambda z, w: torch.view_as_real(z).sum(-1),
    lambda z, w: (z * 0.1).exp(),
    lambda z, w: z * (1 - 2j),
    lambda z, w: torch.where(z.real > 0, z, 2 * z),
    lambda z, w: z.sum(0, keepdim=True),
    lambda z, w: z.mean(-1, keepdim=True),
    lambda z, w: z.unsqueeze(0).expand(2, *z.shape)[1],
    lambda z, w: z.contiguous() + 1,
    lambda z, w: torch.fft.fft(z) / 4,
    lambda z, w: torch.polar(z.abs(), z.angle()),
    lambda z, w: z.clone().mul_(0.5),
    lambda z, w: torch.stack([z, z * 2])[1],
    lambda z, w: z.to(torch.complex128),
    lambda z, w: z[..., ::2],
    lambda z, w: z.sgn(),
    lambda z, w: z.abs().sqrt().to(z.dtype) * z,
    lambda z, w: torch.cat([z, z], -1)[..., : z.shape[-1]] * 1j,
)
_MOST_ELEMENTS = 500


def program(seed: int) -> Callable[..., tuple[Tensor, ...]]:
    """Return a function of a few operators, whose last results it returns."""

    def function(*inputs: Tensor) -> tuple[Tensor, ...]:
        chance, values = random.Random(seed), [*inputs]
        for _ in range(chance.randint(4, 14)):
            z = chance.choice([value for value in values if value.is_complex()])
            w, operator = chance.choice(values), chance.choice(OPERATORS)
            try:
                made = operator(z, w)
            except RuntimeError:  # shapes that do not fit
                continue
            if 0 < made.numel() < _MOST_ELEMENTS and not (made.is_conj() or made.is_neg()):
                values.append(made)
        return (inputs[0] * 1, *values[len(inputs) :][-4:])

    return function


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int, runtime: str) -> None:
    chance, function = random.Random(seed), program(seed)
    dtype, shape = chance.choice(DTYPES), chance.choice(SHAPES)
    generator = torch.Generator().manual_seed(seed)

    def tensor(*sizes: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(*sizes, dtype=dtype, generator=generator)

    turned = tensor(*shape[::-1]).permute(*reversed(range(len(shape))))
    inputs = (turned, tensor(*shape), tensor(*shape, dtype=dtype.to_real()))
    compiled = hostjit.compile(function, runtime=runtime, dynamic=seed % 4 == 0)
    for _ in range(2):
        torch.testing.assert_close(
            compiled(*inputs), function(*inputs), rtol=1e-4, atol=1e-4, check_stride=True
        )
