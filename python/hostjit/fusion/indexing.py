# SPDX-License-Identifier: Apache-2.0
"""Operations that take or put elements by index, and those that search and sort."""

from __future__ import annotations

import operator

from hostjit.fusion.builder import Builder, aten
from hostjit.fusion.data_type import DataType
from hostjit.fusion.operation import operation
from hostjit.fusion.values import Scalar, Tensor

__all__: list[str] = []


def _index(builder: Builder, index: Tensor) -> object:
    """An index as ATen takes it."""
    if not index.dtype().is_integral:
        raise builder.error(f"index has to be of integers, found {index}")
    return builder.cast(index, DataType.Int)


def _place(builder: Builder, arg: Tensor, dim: int, *others: Tensor) -> int:
    for other in others:
        if other.ndim != arg.ndim:
            raise builder.error(f"{other} has {other.ndim} dims, expected {arg.ndim} as {arg}")
    if not arg.ndim:
        raise builder.error(f"takes a tensor with dims, found {arg}")
    return builder.dim(dim, arg.ndim)


@operation("indexing")
def index_select(builder: Builder, arg: Tensor, index: Tensor, dim: int) -> Tensor:
    """Take the slices of a dim that an index without dims or with one names."""
    place = _place(builder, arg, dim)
    if index.ndim > 1:
        raise builder.error(f"index has to have 0 or 1 dims, found {index}")
    node = builder.call(aten.index_select.default, arg, place, _index(builder, index))
    count = index.sizes[0] if index.ndim else 1
    sizes = (*arg.sizes[:place], count, *arg.sizes[place + 1 :])
    return builder.tensor(node, arg.dtype(), sizes)


@operation("indexing")
def select(builder: Builder, arg: Tensor, index: Scalar, dim: int) -> Tensor:
    """Take one slice of a dim."""
    place = _place(builder, arg, dim)
    node = builder.call(aten.select.int, arg, place, builder.integer(index, "index"))
    return builder.tensor(node, arg.dtype(), arg.sizes[:place] + arg.sizes[place + 1 :])


@operation("indexing")
def gather(builder: Builder, arg: Tensor, index: Tensor, dim: int) -> Tensor:
    """Take the element of a dim that the index names, for each element of the index."""
    place = _place(builder, arg, dim, index)
    node = builder.call(aten.gather.default, arg, place, _index(builder, index))
    return builder.tensor(node, arg.dtype(), index.sizes)


@operation("indexing")
def take_along_axis(builder: Builder, arg: Tensor, index: Tensor, dim: int) -> Tensor:
    """Do as `gather`, with the other dims of both broadcast."""
    place = _place(builder, arg, dim, index)
    node = builder.call(aten.take_along_dim.default, arg, _index(builder, index), place)
    sizes = tuple(
        of_index if d == place or size == 1 else size
        for d, (size, of_index) in enumerate(zip(arg.sizes, index.sizes, strict=True))
    )
    return builder.tensor(node, arg.dtype(), sizes)


@operation("indexing")
def scatter(builder: Builder, arg: Tensor, index: Tensor, src: Tensor | Scalar, dim: int) -> Tensor:
    """Return a copy with elements of `src`, or one scalar, where the index says."""
    others = (index, src) if isinstance(src, Tensor) else (index,)
    place = _place(builder, arg, dim, *others)
    where = _index(builder, index)
    if isinstance(src, Tensor):
        if src.dtype() is not arg.dtype():
            raise builder.error(f"src is {src}, expected one of {arg.dtype()} as {arg}")
        node = builder.call(aten.scatter.src, arg, place, where, src)
    else:
        node = builder.call(aten.scatter.value, arg, place, where, builder.number(src, "src"))
    return builder.tensor(node, arg.dtype(), arg.sizes)


@operation("indexing")
def embedding_fwd(
    builder: Builder,
    input: Tensor,  # noqa: A002
    weight: Tensor,
    padding_idx: Scalar | None = None,
    max_norm: Scalar | None = None,
    norm_type: Scalar | None = None,
    scale_grad_by_freq: Scalar | None = None,
    sparse: Scalar | None = None,
) -> Tensor:
    """Take rows of a matrix; with `max_norm` scale those whose norm is greater down to it.

    The matrix itself is not written. What is about gradients has no effect.
    """
    if not input.ndim or weight.ndim != 2:
        raise builder.error(f"takes an index with dims and a matrix, found {input} and {weight}")
    node = builder.call(aten.embedding.default, weight, _index(builder, input))
    if max_norm is not None:
        order = 2.0 if norm_type is None else builder.number(norm_type, "norm_type")
        norm = builder.call(aten.norm.ScalarOpt_dim, node, order, [-1], True)
        most = builder.cast(max_norm, weight.dtype())
        scale = builder.call(aten.div.Tensor, most, builder.call(aten.add.Scalar, norm, 1e-7))
        is_greater = builder.call(aten.gt.Tensor, norm, most)
        scaled = builder.call(aten.mul.Tensor, node, scale)
        node = builder.call(aten.where.self, is_greater, scaled, node)
    return builder.tensor(node, weight.dtype(), (*input.sizes, weight.sizes[1]))


@operation("indexing")
def topk(
    builder: Builder,
    arg: Tensor,
    k: Scalar,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = False,  # noqa: A002
) -> tuple[Tensor, Tensor]:
    """Return the largest or smallest `k` elements of a dim, and their indices."""
    place = builder.dim(dim, arg.ndim)
    count = builder.integer(k, "k")
    pair = builder.call(aten.topk.default, arg, count, place, largest, sorted)
    known = count if isinstance(count, int) else None
    sizes = (*arg.sizes[:place], known, *arg.sizes[place + 1 :]) if arg.ndim else ()
    return (
        builder.tensor(builder.call(operator.getitem, pair, 0), arg.dtype(), sizes),
        builder.tensor(builder.call(operator.getitem, pair, 1), DataType.Int, sizes),
    )


@operation("indexing")
def argsort(
    builder: Builder, arg: Tensor, dim: int, descending: bool = False, stable: bool = False
) -> Tensor:
    """Return the indices that sort a dim."""
    place = builder.dim(dim, arg.ndim)
    node = builder.call(aten.argsort.stable, arg, stable=stable, dim=place, descending=descending)
    return builder.tensor(node, DataType.Int, arg.sizes)
