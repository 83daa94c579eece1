# SPDX-License-Identifier: Apache-2.0
"""Operators that write to places that tensors tell, and where they do.

Such are `x[i] = y`, `x[mask] = 0`, `x.index_add_(0, i, y)` and `x.scatter_(1, i, y)` in functional
graphs. An operator writes where another one reads: `index`, `index_select` or `gather`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from hostjit.capturing.open_sizes import all_equal
from hostjit.lowering.copies import OF_SIZE
from hostjit.lowering.pointwise import DTYPES, NotFusableError, named_arguments
from hostjit.lowering.selection import Pick, Selection, Walk
from hostjit.lowering.selection_rules import gathered, index_selected, indexed
from hostjit.lowering.types import is_plain

__all__ = ["Put"]

aten = torch.ops.aten

# Sums of half types are rounded otherwise by eager: after each addition, or in the end.
_COMBINED = frozenset(DTYPES) - {torch.float16, torch.bfloat16, torch.bool}
_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum"}


@dataclasses.dataclass(frozen=True)
class Put:
    """A write of points of the sizes `shape`, to where `selection` would read them.

    Attributes:
        selection: its source is the tensor that is written.
        shape: of the points.
        source: a tensor, or a number.
        along: for each dimension of the points, that of the source which it walks, or None.
        mask: tells which points are written, with the dimensions of the points that it walks.
        combine: the operation by which what is there becomes what is written; none to replace it.
    """

    selection: Selection
    shape: tuple[Any, ...]
    source: Any
    along: Walk
    mask: tuple[Node, Walk] | None = None
    combine: str = ""

    @property
    def base(self) -> Node:
        """The tensor that is written."""
        return self.selection.source

    @property
    def picks(self) -> tuple[Pick, ...]:
        """The dimensions whose places tensors tell."""
        return self.selection.picks

    @staticmethod
    def of(node: Node) -> Put | None:
        """Return what a node writes; None if the operators here cannot do it."""
        rule = _rules.get(node.target)
        try:
            put = rule(named_arguments(node)) if rule is not None and is_plain(node) else None
        except NotFusableError:
            return None
        return put if put is not None and put._can_be_done() else None

    def _can_be_done(self) -> bool:
        nodes = [self.base, *(pick.index for pick in self.picks)]
        nodes += [self.source] if isinstance(self.source, Node) else []
        nodes += [self.mask[0]] if self.mask else []
        if not all(map(is_plain, nodes)):
            return False
        tensors = [node.meta["val"] for node in nodes]
        dtype = tensors[0].dtype
        if isinstance(self.source, Node) and self.source.meta["val"].dtype is not dtype:
            return False
        is_known = dtype in _COMBINED if self.combine else dtype.itemsize in OF_SIZE
        return is_known and all(tensor.device.type == "cpu" for tensor in tensors)


_Rule = Callable[[dict[str, Any]], Put | None]
_rules: dict[Any, _Rule] = {}


def _puts(*targets: Any) -> Callable[[_Rule], _Rule]:
    def register(rule: _Rule) -> _Rule:
        _rules.update(dict.fromkeys(targets, rule))
        return rule

    return register


@_puts(aten.index_put.default)
def _index_put(arguments: dict[str, Any]) -> Put | None:
    base, indices, source = arguments["self"], arguments["indices"], arguments["values"]
    picked = {dim: index for dim, index in enumerate(indices) if index is not None}
    combine = "add" if arguments["accumulate"] else ""
    if not picked:
        return None
    if any(index.meta["val"].dtype is torch.bool for index in picked.values()):
        return _masked(base, picked, source, combine) if len(picked) == 1 else None
    selection = indexed(base, indices)
    return _broadcast(selection, source, combine)


def _masked(base: Node, masks: dict[int, Node], source: Node, combine: str) -> Put | None:
    """`x[mask] = y` of a value that is the same for all of what the mask picks."""
    ((first, mask),) = masks.items()
    target, given, rank = base.meta["val"], source.meta["val"], mask.meta["val"].dim()
    if rank == 0 or given.dim() > target.dim() - rank + 1:
        return None
    # What the value is broadcast to has one dimension in the place of those of the mask.
    behind = target.dim() - first - rank
    if given.dim() > behind and not _is_one(given.shape[-1 - behind]):
        return None
    dims = list(range(target.dim()))
    expanded: list[int | None] = [None] * target.dim()
    for dim, size in enumerate(reversed(given.shape)):
        if _is_one(size):
            continue
        place = target.dim() - 1 - dim if dim < behind else first - 1 - (dim - behind - 1)
        if not all_equal([size], [target.shape[place]]):
            return None
        expanded[place] = given.dim() - 1 - dim
    walk = tuple(dim - first if first <= dim < first + rank else None for dim in dims)
    whole = Selection(base, tuple(dims))
    return Put(whole, tuple(target.shape), source, tuple(expanded), (mask, walk), combine)


@_puts(aten.index_copy.default)
def _index_copy(arguments: dict[str, Any]) -> Put | None:
    error = "IndexError: index_copy_(): index {} is out of bounds for dimension %d with size %d"
    return _by_index(arguments, arguments["source"], error, wraps=False)


@_puts(aten.index_add.default)
def _index_add(arguments: dict[str, Any]) -> Put | None:
    error = "RuntimeError: index {} is out of bounds for dimension %d with size %d"
    if arguments["alpha"] != 1:
        return None
    return _by_index(arguments, arguments["source"], error, wraps=False, combine="add")


@_puts(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def _index_fill(arguments: dict[str, Any]) -> Put | None:
    error = "IndexError: index {} is out of bounds for dimension %d with size %d"
    return _by_index(arguments, arguments["value"], error, wraps=True)


def _by_index(
    arguments: dict[str, Any], source: Any, error: str, *, wraps: bool, combine: str = ""
) -> Put | None:
    """All of what lies along the other dimensions at each place of one."""
    base, index = arguments["self"], arguments["index"]
    target = base.meta["val"]
    if target.dim() == 0:
        return None
    dim = arguments["dim"] % target.dim()
    size = target.shape[dim]
    if type(size) is not int:  # an error names it
        return None
    selection = index_selected(base, dim, index, error % (dim, size), wraps=wraps)
    return _broadcast(selection, source, combine)


@_puts(aten.scatter.src)
def _scatter(arguments: dict[str, Any]) -> Put | None:
    return _scattered(arguments, arguments["src"])


@_puts(aten.scatter.value)
def _scatter_number(arguments: dict[str, Any]) -> Put | None:
    return _scattered(arguments, arguments["value"])


@_puts(aten.scatter_add.default)
def _scatter_add(arguments: dict[str, Any]) -> Put | None:
    return _scattered(arguments, arguments["src"], "add")


@_puts(aten.scatter_reduce.two)
def _scatter_reduce(arguments: dict[str, Any]) -> Put | None:
    combine = _REDUCTIONS.get(arguments["reduce"])
    if combine is None or not arguments["include_self"]:
        return None
    return _scattered(arguments, arguments["src"], combine)


def _scattered(arguments: dict[str, Any], source: Any, combine: str = "") -> Put | None:
    """An index for every point. The points are those of the index, fewer perhaps than there are."""
    index = arguments["index"]
    selection = gathered(arguments["self"], arguments["dim"], index)
    shape = tuple(index.meta["val"].shape)
    # The source may be larger; what is written is of the sizes of the index.
    along = tuple(range(len(shape))) if isinstance(source, Node) else (None,) * len(shape)
    return Put(selection, shape, source, along, combine=combine)


def _broadcast(selection: Selection, source: Any, combine: str) -> Put | None:
    """A source that is broadcast to what is written."""
    shape = _points(selection)
    if not isinstance(source, Node):
        return Put(selection, shape, source, (None,) * len(shape), combine=combine)
    given = source.meta["val"]
    if len(given.shape) > len(shape):
        return None
    along: list[int | None] = [None] * len(shape)
    for dim, size in enumerate(reversed(given.shape)):
        if not _is_one(size):
            if not all_equal([size], [shape[-1 - dim]]):
                return None
            along[-1 - dim] = given.dim() - 1 - dim
    return Put(selection, shape, source, tuple(along), combine=combine)


def _points(selection: Selection) -> tuple[Any, ...]:
    """The sizes of what a selection reads."""
    base = selection.source.meta["val"]
    sizes: list[Any] = [1 if dim is None else base.shape[dim] for dim in selection.walk]
    for pick in selection.picks:
        for place, dim in enumerate(pick.walk):
            if dim is not None:
                sizes[place] = pick.index.meta["val"].shape[dim]
    return tuple(sizes)


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1
