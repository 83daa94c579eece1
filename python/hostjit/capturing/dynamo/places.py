# SPDX-License-Identifier: Apache-2.0
"""Indices that are int tensors without dims: `x[i]`, `x[:, i] = y`.

Eager reads such a tensor and makes a view. In a program the place is data, as in `x[[3, 1]]`: what
is read is copied, and what is written through the copy is put back. That is the same where nobody
can tell a view from a copy; elsewhere Dynamo stops there.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_leaves

from hostjit.capturing.dynamo.tensor_places import is_indexed_by_place
from hostjit.capturing.functional.graph_writes import written_nodes
from hostjit.capturing.open_sizes import is_dense, known
from hostjit.capturing.overlap import may_write
from hostjit.capturing.traced_graph import storage_of

__all__ = ["getitem_at", "setitem_at_", "with_places_as_data"]

aten = torch.ops.aten

# Of a view: where it lies, or another view of its memory that is not made of its elements alone.
_TELL_PLACES = frozenset({"as_strided", "storage_offset", "data_ptr", "untyped_storage", "data"})
_HIDE = frozenset({"detach", "detach_", torch.detach, torch._C._autograd._get_data_attr})  # type: ignore[attr-defined]


def getitem_at(tensor: torch.Tensor, index: tuple[Any, ...]) -> torch.Tensor:
    """`tensor[index]`, as elements of their own."""
    base, places, rest = _parts(tensor, index)
    found: torch.Tensor = aten.index.Tensor(base, places)
    return found[rest]


def setitem_at_(tensor: torch.Tensor, index: tuple[Any, ...], value: Any) -> None:
    """`tensor[index] = value`."""
    base, places, rest = _parts(tensor, index)
    shape = [size for size, place in zip(base.shape, places, strict=True) if place is None]
    sizes = iter(shape)
    target = [1 if item is None else next(sizes) for item in rest[:-1]] + [*sizes]
    kept = [size for size, item in zip(target, (*rest[:-1], *target), strict=False) if item != 0]
    if not isinstance(value, torch.Tensor):
        value = torch.full((), value, dtype=tensor.dtype, device=tensor.device)
    value = value.to(tensor.dtype)
    while value.dim() > len(kept) and value.shape[0] == 1:
        value = value[0]
    aten.index_put_.default(base, places, value.expand(kept).reshape(shape))


def _parts(
    tensor: torch.Tensor, index: tuple[Any, ...]
) -> tuple[torch.Tensor, list[Any], tuple[Any, ...]]:
    """Return a view of all dims, what picks among them, and how to index what is left of them."""
    dims = tensor.dim()
    taken = sum(item is not None and item is not Ellipsis for item in index)
    places: list[Any] = []
    rest: list[Any] = []
    for item in index:
        dim = len(places)
        if item is Ellipsis:
            places += [None] * (dims - taken)
            rest += [slice(None)] * (dims - taken)
        elif item is None:
            rest.append(None)
        elif isinstance(item, torch.Tensor):
            is_index = item.dtype in (torch.int64, torch.int32)
            places.append(item if is_index else item.long())  # as a list of indices has to be
        elif isinstance(item, slice):
            tensor = tensor[(slice(None),) * dim + (item,)]
            places.append(None)
            rest.append(slice(None))
        else:
            tensor = tensor.select(dim, item).unsqueeze(dim)
            places.append(None)
            rest.append(0)
    places += [None] * (dims - len(places))
    return tensor, places, (*rest, Ellipsis)


def with_places_as_data(module: GraphModule) -> bool:
    """Have a graph of Dynamo's, and its regions, pick by such indices.

    False, and nothing is changed, where somebody could tell that there are no views.
    """
    found = [(part, _indexing(part.graph)) for part in _parts_of(module)]
    backs = [_Memory(part.graph).writes_back(nodes) if nodes else [] for part, nodes in found]
    if any(back is None for back in backs):
        return False
    for (part, nodes), back in zip(found, backs, strict=True):
        for writer, item in back or []:
            with part.graph.inserting_after(writer):
                part.graph.call_function(setitem_at_, (item.args[0], _items(item), item))
        for node in nodes:
            node.target = getitem_at if node.target is operator.getitem else setitem_at_
            node.args = (node.args[0], _items(node), *node.args[2:])
        if nodes:
            part.recompile()
    return True


def _parts_of(module: GraphModule) -> list[GraphModule]:
    return [part for part in module.modules() if isinstance(part, GraphModule)]


def _indexing(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if _has_place(node)]


def _has_place(node: Node) -> bool:
    if node.target not in (operator.getitem, operator.setitem):
        return False
    return is_indexed_by_place(_value(node.args[0]), tuple(map(_value, _items(node))))


def _items(node: Node) -> tuple[Any, ...]:
    index = node.args[1]
    return index if isinstance(index, tuple) else (index,)


def _value(value: Any) -> Any:
    return value.meta.get("example_value") if isinstance(value, Node) else value


class _Memory:
    """Which nodes of a graph share memory, and when it is read and written."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = list(graph.nodes)
        self._storages = {node: _storages(node) for node in self._nodes}

    def writes_back(self, nodes: list[Node]) -> list[tuple[Node, Node]] | None:
        """Return behind which nodes what items are to be put back; None if copies do not do."""
        found: list[tuple[Node, Node]] = []
        for node in nodes:
            if node.target is operator.getitem:
                writers = self._writers(node)
                if writers is None:
                    return None
                found += [(writer, node) for writer in writers]
        return found

    def _writers(self, item: Node) -> list[Node] | None:
        """Return what writes an item that is to be a copy; None if it cannot be one."""
        memory = self._of(item)
        if not _lies_in_order(_value(item)):
            return None
        later = self._nodes[self._nodes.index(item) + 1 :]
        index = set[int]().union(*map(self._of, _nodes_in(item.args[1])))
        views = {item}
        writers: list[Node] = []
        is_stale = index_written = hides = False
        for node in later:
            used = views.intersection(node.all_input_nodes)
            if used and (is_stale or node.target in _TELL_PLACES):
                return None
            if node.op == "output":
                return writers if not used or self._is_new(item, views, node) else None
            writes = may_write(node)
            written = written_nodes(node) if writes else []
            # What a write returns is what it wrote.
            if used and self._of(node) & memory and not (writes and views.isdisjoint(written)):
                if not writes and self._is_view_of_others(node, used):
                    return None
                views.add(node)
                hides = hides or node.target in _HIDE
            if not writes:
                continue
            index_written = index_written or any(self._of(w) & index for w in written)
            written = [w for w in written if self._of(w) & memory]
            if views.intersection(written):
                if hides or index_written:
                    return None
                if not self._is_put_back_by_code(node, item, views):
                    writers.append(node)
            elif written:
                is_stale = True
        return writers

    def _of(self, node: Node) -> set[int]:
        return self._storages[node]

    def _is_view_of_others(self, node: Node, used: set[Node]) -> bool:
        """Whether a view may be one of another operand than those."""
        others = (operand for operand in node.all_input_nodes if operand not in used)
        return any(self._of(operand) & self._of(node) for operand in others)

    def _is_put_back_by_code(self, writer: Node, item: Node, views: set[Node]) -> bool:
        """Whether what comes next puts an item back, as `x[i] += y` does."""
        node = writer.next
        return (
            node.target is operator.setitem
            and node.args[:2] == item.args[:2]
            and node.args[2] in {*views, writer}
            and _value(node.args[2]) is _value(item)
        )

    def _is_new(self, item: Node, views: set[Node], output: Node) -> bool:
        """Whether views that are results look as eager's do, and nobody has what they are of."""
        value = _value(item)
        if not is_dense(value.shape, value.stride()):
            return False
        others = [node for node in self._nodes if node.op in ("placeholder", "get_attr")]
        others += [node for node in output.all_input_nodes if node not in views]
        return not any(self._of(node) & self._of(item) for node in others)


def _nodes_in(value: Any) -> list[Node]:
    found: list[Node] = []
    torch.fx.node.map_arg(value, found.append)
    return found


def _storages(node: Node) -> set[int]:
    found = {storage_of(value) for value in tree_leaves(_value(node))}
    return {storage for storage in found if storage is not None}


def _lies_in_order(tensor: torch.Tensor) -> bool:
    """Whether a copy of a tensor, in the order of its memory, is contiguous."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    steps = [stride for size, stride in pairs if not known(size == 1)]
    in_order = all(known(a >= b) for a, b in itertools.pairwise(steps))
    return in_order and all(known(stride >= 1) for stride in steps)
