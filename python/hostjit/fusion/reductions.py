# SPDX-License-Identifier: Apache-2.0
"""Operations over all elements of dims: reductions and scans."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import Node

from hostjit.fusion.builder import Builder, aten
from hostjit.fusion.data_type import DataType
from hostjit.fusion.operation import operation, register
from hostjit.fusion.values import Scalar, Shape, Tensor

__all__: list[str] = []

_Dims = list[int] | int | DataType | None


def _reduced(builder: Builder, arg: Tensor, dims: Sequence[int] | int, keepdim: bool) -> Any:
    """The dims of a reduction, and the sizes of its result."""
    wanted = [dims] if isinstance(dims, int) else dims
    if not wanted and arg.ndim:
        raise builder.error("no dims to reduce: leave them out to reduce all")
    found = builder.dims(wanted, arg.ndim)
    sizes: Shape = tuple(
        1 if dim in found else size
        for dim, size in enumerate(arg.sizes)
        if keepdim or dim not in found
    )
    return found, sizes


def _sum(builder: Builder, node: Node, dims: list[int], keepdim: bool, dtype: Any) -> Node:
    return builder.call(aten.sum.dim_IntList, node, dims, keepdim, dtype=dtype)


def _prod(builder: Builder, node: Node, dims: list[int], keepdim: bool, dtype: Any) -> Node:
    if not dims:
        return builder.call(aten.clone.default, node)
    for dim in reversed(dims):
        node = builder.call(aten.prod.dim_int, node, dim, keepdim, dtype=dtype)
    return node


def _amax(builder: Builder, node: Node, dims: list[int], keepdim: bool, dtype: Any) -> Node:
    return builder.call(aten.amax.default, node, dims, keepdim)


def _amin(builder: Builder, node: Node, dims: list[int], keepdim: bool, dtype: Any) -> Node:
    return builder.call(aten.amin.default, node, dims, keepdim)


def _reduction(reduce: Callable[..., Node], adds: bool) -> Callable[..., Tensor]:
    """Write a reduction; one that adds or multiplies does it in Int for integers and bools."""

    def write(
        builder: Builder,
        arg: Tensor,
        dims: _Dims = None,
        keepdim: bool = False,
        dtype: DataType = DataType.Null,
        *,
        dim: int | None = None,
    ) -> Tensor:
        wanted: list[int] | int | None = dim
        if isinstance(dims, DataType):
            dtype = dims
        elif dims is not None:
            if dim is not None:
                raise builder.error("takes dim or dims, not both")
            wanted = dims
        data_type = arg.dtype()
        if not adds and dtype is not DataType.Null:
            raise builder.error(f"has the dtype of its operand: cast the result to {dtype}")
        if dtype is not DataType.Null:
            data_type = dtype
        elif adds and (data_type.is_integral or data_type is DataType.Bool):
            data_type = DataType.Int
        found, sizes = _reduced(
            builder, arg, list(range(arg.ndim)) if wanted is None else wanted, keepdim
        )
        node = reduce(builder, builder.cast(arg, data_type), found, keepdim, data_type.torch_dtype)
        return builder.tensor(node, data_type, sizes)

    return write


for _name, _reduce, _adds in (
    ("sum", _sum, True),
    ("prod", _prod, True),
    ("max", _amax, False),
    ("min", _amin, False),
):
    register(_name, "reduction", _reduction(_reduce, _adds))


def _moments(
    builder: Builder, arg: Tensor, dims: list[int], correction: int, keepdim: bool
) -> tuple[Any, Any, DataType, Shape]:
    if correction < 0:
        raise builder.error(f"correction is {correction}, expected 0 or more")
    narrow = arg.dtype().is_narrow or arg.dtype().rank_of_kind < 2
    data_type = DataType.Float if narrow else arg.dtype()
    found, sizes = _reduced(builder, arg, dims, keepdim)
    pair = builder.call(
        aten.var_mean.correction,
        builder.cast(arg, data_type),
        found,
        correction=correction,
        keepdim=keepdim,
    )
    return _item(builder, pair, 0), _item(builder, pair, 1), data_type, sizes


def _item(builder: Builder, node: Node, index: int) -> Node:
    return builder.call(operator.getitem, node, index)


@operation("reduction")
def var(
    builder: Builder, arg: Tensor, dims: list[int], correction: int = 1, keepdim: bool = False
) -> Tensor:
    """Return the variance, at least in Float."""
    variance, _, data_type, sizes = _moments(builder, arg, dims, correction, keepdim)
    return builder.tensor(variance, data_type.real, sizes)


@operation("reduction")
def var_mean(
    builder: Builder, arg: Tensor, dims: list[int], correction: int = 1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean of Float, Double or complex elements."""
    if arg.dtype().is_narrow:
        raise builder.error(f"takes Float or wider, found {arg}: cast it")
    variance, mean, data_type, sizes = _moments(builder, arg, dims, correction, keepdim)
    first = builder.tensor(variance, data_type.real, sizes)
    return first, builder.tensor(mean, data_type, sizes)


@operation("reduction")
def welford(builder: Builder, arg: Tensor, dims: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean, the sum of squared differences from it, and the number of elements."""
    if not arg.dtype().is_floating:
        raise builder.error(f"takes floating point numbers, found {arg}")
    found, sizes = _reduced(builder, arg, dims, keepdim=False)
    mean = builder.call(aten.mean.dim, arg, found, True)
    apart = builder.call(aten.sub.Tensor, arg, mean)
    squares = builder.call(aten.mul.Tensor, apart, apart)
    total = builder.call(aten.sum.dim_IntList, squares, found, False)
    ones = builder.call(aten.ones_like.default, arg, dtype=DataType.Int.torch_dtype)
    count = builder.call(aten.sum.dim_IntList, ones, found, False)
    average = builder.call(aten.mean.dim, arg, found, False)
    return (
        builder.tensor(average, arg.dtype(), sizes),
        builder.tensor(total, arg.dtype(), sizes),
        builder.tensor(count, DataType.Int, sizes),
    )


def _scan(target: Any, has_indices: bool, in_dtype: bool) -> Callable[..., Tensor]:
    def write(builder: Builder, arg: Tensor, dim: int, init: Scalar | None = None) -> Tensor:
        if init is not None:
            raise builder.error("has no init in hostjit: combine the result with it")
        place = builder.dim(dim, arg.ndim)
        options = {"dtype": arg.dtype().torch_dtype} if in_dtype else {}
        node = builder.call(target, arg, place, **options)
        if has_indices:
            node = _item(builder, node, 0)
        return builder.tensor(node, arg.dtype(), arg.sizes)

    return write


for _name in ("cumsum", "cumprod"):
    register(_name, "scan", _scan(getattr(aten, _name).default, has_indices=False, in_dtype=True))
for _name in ("cummin", "cummax"):
    register(_name, "scan", _scan(getattr(aten, _name).default, has_indices=True, in_dtype=False))
