# SPDX-License-Identifier: Apache-2.0
"""The selections of operators, with the errors that eager raises for an index out of bounds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import Node

from hostjit.lowering.pointwise import NotFusableError, named_arguments
from hostjit.lowering.selection import Pick, Selection, Walk, selects_elements
from hostjit.lowering.sizes import shape_of, size_of

__all__ = ["gathered", "index_selected", "indexed"]

_OUT_OF_RANGE = "IndexError: index out of range in self"


def _tensor(node: object) -> torch.Tensor:
    value = node.meta["val"] if isinstance(node, Node) else None
    if not isinstance(value, torch.Tensor):
        raise NotFusableError("an operand is no tensor")
    return value


def _named_size(tensor: torch.Tensor, dim: int) -> int:
    """A size that the text of an error names."""
    size = size_of(tensor.shape[dim])
    if not isinstance(size, int):
        raise NotFusableError("the error for a wrong index names a size that is not known")
    return size


@selects_elements("aten.flip.default")
def flip(node: Node) -> Selection:
    """The same dimensions, some of them backwards."""
    arguments = named_arguments(node)
    rank = _tensor(arguments["self"]).dim()
    flipped = frozenset(dim % rank for dim in arguments["dims"]) if rank else frozenset()
    return Selection(arguments["self"], tuple(range(rank)), flipped)


@selects_elements("aten.gather.default")
def gather(node: Node) -> Selection:
    """An index for every element."""
    arguments = named_arguments(node)
    return gathered(arguments["self"], arguments["dim"], arguments["index"])


def gathered(self: Node, dim: int, index: Node) -> Selection:
    """An index for every element. It may be smaller than `self` in the other dimensions."""
    source = _tensor(self)
    if source.dim() == 0 or _tensor(index).dim() == 0:
        raise NotFusableError("gather of one element")
    dim %= source.dim()
    size = _named_size(source, dim)
    error = f"RuntimeError: index {{}} is out of bounds for dimension {dim} with size {size}"
    walk = tuple(None if d == dim else d for d in range(source.dim()))
    pick = Pick(dim, index, tuple(range(source.dim())), error)
    return Selection(self, walk, picks=(pick,))


@selects_elements("aten.index_select.default")
def index_select(node: Node) -> Selection:
    """An index for all of what lies along the other dimensions."""
    arguments = named_arguments(node)
    source, index = _tensor(arguments["self"]), arguments["index"]
    if source.dim() == 0 or _tensor(index).dim() == 0:
        raise NotFusableError("index_select of one element")
    dim = arguments["dim"] % source.dim()
    error = _OUT_OF_RANGE
    if dim == 1:
        # Eager has a function of its own there.
        size = _named_size(source, dim)
        error = f"RuntimeError: INDICES element is out of DATA bounds, id={{}} axis_dim={size}"
    return index_selected(arguments["self"], dim, index, error)


def index_selected(
    self: Node, dim: int, index: Node, error: str, *, wraps: bool = False
) -> Selection:
    """An index for all of what lies along the other dimensions, where `dim` is."""
    rank = _tensor(self).dim()
    walk = tuple(None if d == dim else d for d in range(rank))
    walked = tuple(0 if d == dim and _tensor(index).dim() else None for d in range(rank))
    return Selection(self, walk, picks=(Pick(dim, index, walked, error, wraps),))


@selects_elements("aten.embedding.default")
def embedding(node: Node) -> Selection:
    """Rows of the weight; padding only matters to gradients."""
    arguments = named_arguments(node)
    indices = arguments["indices"]
    rank = _tensor(indices).dim()
    row = (None,) * rank
    pick = Pick(0, indices, (*range(rank), None), _OUT_OF_RANGE)
    return Selection(arguments["weight"], (*row, 1), picks=(pick,))


@selects_elements("aten.index.Tensor")
def index(node: Node) -> Selection:
    """The common shape of the indices in the place of the dimensions that they pick.

    That is where those were if they are neighbours, and in front of all others if not. Indices
    without dims are those of `x[i]`, whose error names the dimension.
    """
    arguments = named_arguments(node)
    return indexed(arguments["self"], arguments["indices"])


def indexed(self: Node, indices: Sequence[Node | None]) -> Selection:
    """What `self[indices]` is made of."""
    source = _tensor(self)
    picked = {dim: given for dim, given in enumerate(indices) if given is not None}
    tensors = [_tensor(given) for given in picked.values()]
    if not all(tensor.dtype in (torch.int64, torch.int32) for tensor in tensors):
        raise NotFusableError("a mask as an index")
    rank = max(tensor.dim() for tensor in tensors)
    dims = list(picked)
    neighbours = dims == list(range(dims[0], dims[0] + len(dims)))
    front = dims[0] if neighbours else 0
    walk: list[int | None] = [dim for dim in range(source.dim()) if dim not in picked]
    walk[front:front] = [None] * rank
    picks = []
    for number, (dim, given) in enumerate(picked.items()):
        size = _named_size(source, dim)
        named = number if rank else dim
        error = f"IndexError: index {{}} is out of bounds for dimension {named} with size {size}"
        walked = _broadcast(_tensor(given), len(walk), front + rank)
        picks.append(Pick(dim, given, walked, error, wraps=True))
    return Selection(self, tuple(walk), picks=tuple(picks))


def _broadcast(tensor: torch.Tensor, rank: int, end: int) -> Walk:
    """The walk of a tensor whose dimensions are the last before `end` of `rank`."""
    own = [None if size == 1 else dim for dim, size in enumerate(shape_of(tensor))]
    return (*(None,) * (end - len(own)), *own, *(None,) * (rank - end))
