# SPDX-License-Identifier: Apache-2.0
"""Tensors that are made of numbers: ranges, constants, and random ones of PyTorch's generators."""

from __future__ import annotations

import math
from typing import Any

import torch

from hostjit.fusion.builder import Builder, aten
from hostjit.fusion.data_type import DataType
from hostjit.fusion.operation import operation
from hostjit.fusion.values import Scalar, Tensor

__all__: list[str] = []

_prims: Any = torch.ops.prims


@operation("factory")
def iota(
    builder: Builder,
    length: Scalar,
    start: Scalar | None = None,
    step: Scalar | None = None,
    dtype: DataType = DataType.Int,
) -> Tensor:
    """Return start, start + step, ...: that many numbers."""
    for what, end in (("start", start), ("step", step)):
        if end is not None and (end.dtype().rank_of_kind != dtype.rank_of_kind or dtype.is_complex):
            raise builder.error(f"{what} is {end}, expected one of {dtype}")
        if end is not None and end.value is not None and not math.isfinite(end.value.real):
            raise builder.error(f"{what} is {end}, expected a finite number")
    if step is not None and step.value == 0:
        raise builder.error("step is 0")
    count = builder.integer(length, "length")
    first = builder.constant(0) if start is None else start
    by = builder.constant(1) if step is None else step
    data_type = dtype if dtype.is_integral else DataType.Int
    ends = first.as_operand(), by.as_operand()
    is_whole = dtype.is_integral and None not in ends
    node = builder.make(
        _prims.iota.default,
        count,
        start=ends[0] if is_whole else 0,
        step=ends[1] if is_whole else 1,
        dtype=data_type.torch_dtype,
        device=torch.device("cpu"),
        requires_grad=False,
    )
    if not is_whole:
        if not dtype.is_integral:
            node = builder.call(aten.to.dtype, node, dtype.torch_dtype)
        node = builder.call(aten.mul.Tensor, node, builder.cast(by, dtype))
        node = builder.call(aten.add.Tensor, node, builder.cast(first, dtype))
    return builder.tensor(node, dtype, (count if isinstance(count, int) else None,))


@operation("factory")
def full(builder: Builder, shape: list[Scalar], fill_value: Scalar, dtype: DataType) -> Tensor:
    """Return a tensor of one number."""
    numbers, sizes = builder.sizes(shape, "shape")
    fill = fill_value.as_operand()
    if fill_value.value is not None:
        fill = dtype.convert(fill_value.value)
    is_plain = fill is not None and fill_value.dtype().rank_of_kind <= dtype.rank_of_kind
    node = builder.make(
        aten.full.default,
        numbers,
        fill if is_plain or fill_value.value is not None else 0,
        dtype=dtype.torch_dtype,
        device=torch.device("cpu"),
    )
    if not is_plain and fill_value.value is None:
        node = builder.call(aten.fill.Tensor, node, builder.cast(fill_value, dtype))
    return builder.tensor(node, dtype, sizes)


def _random(
    builder: Builder,
    fill: Any,
    numbers: tuple[Scalar, Scalar],
    shape: list[Scalar],
    seeds: tuple[Scalar | None, Scalar | None],
    dtype: DataType,
) -> Tensor:
    if any(seed is not None for seed in seeds):
        raise builder.error(
            "rng_seed and rng_offset are not available: numbers are those of PyTorch's generator "
            "of the device; use torch.manual_seed"
        )
    if not dtype.is_floating:
        raise builder.error(f"dtype is {dtype}, expected floating point")
    extents, sizes = builder.sizes(shape, "shape")
    node = builder.make(
        aten.empty.memory_format, extents, dtype=dtype.torch_dtype, device=torch.device("cpu")
    )
    first, second = (
        builder.number(number, what) for number, what in zip(numbers, ("mean", "std"), strict=True)
    )
    return builder.tensor(builder.call(fill, node, first, second), dtype, sizes)


@operation("random")
def normal(
    builder: Builder,
    mean: Scalar,
    std: Scalar,
    shape: list[Scalar],
    *,
    rng_seed: Scalar | None = None,
    rng_offset: Scalar | None = None,
    dtype: DataType = DataType.Float,
) -> Tensor:
    """Return normally distributed numbers."""
    seeds = (rng_seed, rng_offset)
    return _random(builder, aten.normal_functional.default, (mean, std), shape, seeds, dtype)


@operation("random")
def uniform(
    builder: Builder,
    minval: Scalar,
    maxval: Scalar,
    shape: list[Scalar],
    *,
    rng_seed: Scalar | None = None,
    rng_offset: Scalar | None = None,
    dtype: DataType = DataType.Float,
) -> Tensor:
    """Return evenly distributed numbers."""
    seeds = (rng_seed, rng_offset)
    return _random(builder, aten.uniform.default, (minval, maxval), shape, seeds, dtype)


@operation("random")
def rand_like(builder: Builder, x: Tensor) -> Tensor:
    """Return numbers evenly distributed between 0 and 1, as many as there are elements."""
    return _like(builder, x, aten.rand_like.default)


@operation("random")
def randn_like(builder: Builder, x: Tensor) -> Tensor:
    """Return normally distributed numbers, as many as there are elements."""
    return _like(builder, x, aten.randn_like.default)


def _like(builder: Builder, x: Tensor, target: Any) -> Tensor:
    if not x.dtype().is_floating:
        raise builder.error(f"takes floating point numbers, found {x}")
    return builder.tensor(builder.call(target, x), x.dtype(), x.sizes)
