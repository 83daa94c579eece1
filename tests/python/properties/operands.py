# SPDX-License-Identifier: Apache-2.0
"""Tensors of random shapes, layouts, types and values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st

Draw = st.DrawFn

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)

# The values of a program's inputs. Eighths have sums that no order of summation changes; extreme
# ones overflow, so that sums and products depend on the order.
STYLES = ("eighths", "normal", "special", "extreme")

_SIZES = st.sampled_from((0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33))
_MOST_ELEMENTS = 2048
_MOST_STORED = 2**17
# Memory is filled with repetitions of so many random values, a number that no stride divides.
_MOST_VALUES = 3001


@dataclass(frozen=True)
class Operand:
    """An input by its description.

    limit: index tensors have values from 0 to below it.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    style: str
    seed: int
    limit: int | None = None

    def make(self, variant: int = 0) -> torch.Tensor:
        """Return the tensor; another variant has other values."""
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        stored = self.offset + (0 if 0 in self.shape else last + 1)
        generator = torch.Generator().manual_seed(self.seed * 2 + variant)
        count = min(stored, _MOST_VALUES)
        if self.limit is not None:
            values = torch.randint(self.limit, (count,), generator=generator, dtype=self.dtype)
        else:
            values = _values(self.dtype, self.style, count, generator)
        if stored > count:
            values = values.repeat(stored // count + 1)
        return values.as_strided(self.shape, self.stride, self.offset)

    def grown(self, by: int) -> Operand:
        """Describe a tensor with more of everything that there is two of, in the same order."""
        shape = tuple(size + by if size > 1 else size for size in self.shape)
        strides, step = [0] * len(shape), 1
        for dim in sorted(range(len(shape)), key=lambda dim: (self.stride[dim], -dim)):
            if self.stride[dim]:
                strides[dim], step = step, step * max(shape[dim], 1)
        return replace(self, shape=shape, stride=tuple(strides))


def _values(dtype: torch.dtype, style: str, count: int, generator: torch.Generator) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.rand(count, generator=generator) < 0.5
    if dtype.is_floating_point and style == "normal":
        return torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)
    whole = torch.randint(0 if dtype is torch.uint8 else -40, 41, (count,), generator=generator)
    if not dtype.is_floating_point:
        base = whole // 8 if dtype is not torch.uint8 else whole // 4
        return _sprinkle(base.to(dtype), special_integers(dtype), style, generator)
    return _sprinkle((whole / 8.0).to(dtype), special_floats(dtype, style), style, generator)


def _sprinkle(
    base: torch.Tensor, specials: torch.Tensor, style: str, generator: torch.Generator
) -> torch.Tensor:
    """Replace every sixth element or so by a special one, in the styles that have them."""
    if style not in ("special", "extreme"):
        return base
    chosen = torch.randint(len(specials), base.shape, generator=generator)
    return torch.where(torch.rand(base.shape, generator=generator) < 0.16, specials[chosen], base)


def special_integers(dtype: torch.dtype) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    return torch.tensor([limits.max, limits.min, limits.max - 1, limits.min + 1, 0], dtype=dtype)


def special_floats(dtype: torch.dtype, style: str) -> torch.Tensor:
    info = torch.finfo(dtype)
    values = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0]
    values += [info.smallest_normal, -info.smallest_normal / 2, info.smallest_normal / 4]
    if style == "extreme":
        values += [info.max, info.min, info.eps, 0.49999997, 8388609.0, 100.5, -88.75]
    return torch.tensor(values, dtype=torch.float64).to(dtype)


@st.composite
def shapes(draw: Draw, min_dims: int = 0, max_dims: int = 4) -> tuple[int, ...]:
    shape: list[int] = []
    for _ in range(draw(st.integers(min_dims, max_dims))):
        room = _MOST_ELEMENTS // max(1, torch.Size(shape).numel())
        size = draw(_SIZES)
        shape.append(size if size <= room else 1)
    return tuple(shape)


@st.composite
def layouts(draw: Draw, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return strides and an offset: dense, permuted, with gaps, expanded or far apart."""
    stride = [0] * len(shape)
    if draw(st.booleans()):
        return torch.empty(shape, device="meta").stride(), 0
    step = 1
    for dim in draw(st.permutations(range(len(shape)))):
        kind = draw(st.sampled_from(("dense", "dense", "dense", "gaps", "expanded", "far")))
        if kind == "expanded":
            continue
        gap = {"dense": 1, "gaps": draw(st.integers(2, 3)), "far": 4099}[kind]
        if step * gap * max(1, shape[dim]) > _MOST_STORED:
            gap = 1
        stride[dim] = step * gap
        step *= gap * max(1, shape[dim])
    return tuple(stride), draw(st.sampled_from((0, 0, 1, 5)))


@st.composite
def operands(
    draw: Draw, dtype: torch.dtype, shape: tuple[int, ...], style: str, limit: int | None = None
) -> Operand:
    stride, offset = draw(layouts(shape))
    return Operand(dtype, shape, stride, offset, style, draw(st.integers(0, 999)), limit)
