# SPDX-License-Identifier: Apache-2.0
"""Launches and parts of inputs that are written where eager writes, not in copies.

A functional graph gives a kernel a copy of each tensor that it writes, and copies what becomes of
an input back to it. Where nobody looks at the memory in between, the copies are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils._pytree import tree_leaves

from hostjit.capturing.traced_graph import copy_of, storage_of
from hostjit.launching.launch_operator import LAUNCH
from hostjit.lowering.members import is_fusable
from hostjit.lowering.pointwise import creates
from hostjit.lowering.put_rules import PUT
from hostjit.lowering.scatters import (
    expand_scatters,
    fold_scatters,
    may_be_of_input,
    puts,
    stands_for_scatter,
    written_parts,
)
from hostjit.lowering.sizes import symbolic_views
from hostjit.lowering.views import viewed

__all__ = ["with_writes_in_place"]

aten = torch.ops.aten
# What these nodes are is what they write: their first operand.
_WRITES = (PUT, aten.copy_.default)


def with_writes_in_place(graph: Graph, *, is_own: bool) -> Graph:
    """A graph that writes in place where that makes no difference.

    One of the caller's own is changed; another is copied, if there is anything to do.
    """
    has_launches = bool(graph.find_nodes(op="call_function", target=LAUNCH))
    if not has_launches and not puts(graph) and not written_parts(graph):
        return graph
    if not is_own:
        graph = copy_of(graph)
    expand_scatters(graph)
    memory = _Memory(graph)
    for node in graph.find_nodes(op="call_function", target=aten.as_strided_scatter.default):
        memory.leave_out_scatter(node)
    # From the last on: the copy of a copy goes first.
    for clone in reversed(list(graph.find_nodes(op="call_function", target=aten.clone.default))):
        if stands_for_scatter(clone) or memory.is_written_by_a_launch(clone):
            memory.leave_out(clone)
    fold_scatters(graph)
    return graph


class _Memory:
    """Which nodes of a graph share memory, and when it is used."""

    def __init__(self, graph: Graph) -> None:
        self._views = symbolic_views(graph)
        self._position = {node: position for position, node in enumerate(graph.nodes)}
        self._nodes: dict[int, list[Node]] = {}
        self._found: dict[Node, list[int]] = {}
        for node in graph.nodes:
            self._found[node] = list(_storages(node.meta.get("val")))
            for storage in self._found[node]:
                self._nodes.setdefault(storage, []).append(node)

    def is_written_by_a_launch(self, clone: Node) -> bool:
        written = _storages(clone.meta["val"])
        return any(
            user.target is LAUNCH and node in _written(user)
            for storage in written
            for node in self._nodes[storage]
            for user in node.users
        )

    def leave_out(self, clone: Node) -> None:
        """Have the users of a clone use its source, if that makes no difference.

        It makes none where nobody uses the memory of the source any more, or where nobody does
        until the changed clone is copied back, and the clone is not used any more from there on.
        """
        source = clone.args[0]
        assert isinstance(source, Node)
        if 0 in source.meta["val"].stride() and stands_for_scatter(clone):
            return  # elements that are one in the source, and written apart
        (of_source,), (of_clone,) = self._found[source], self._found[clone]
        values = None if clone.kwargs else self._values_on(source, clone)
        if values is None:
            return
        owner = self._nodes[of_source][0]
        if creates.find(owner.target):
            return
        if owner.op == "placeholder" and stands_for_scatter(clone) and not may_be_of_input(clone):
            return
        later = self._uses_behind(clone, of_source)
        if later:
            back = later[0]
            if not self._copies_back(back, clone, values) or self._uses_behind(back, of_clone):
                return
            back.replace_all_uses_with(back.args[0])  # type: ignore[arg-type]
            self._erase(back)
        elif owner.op != "call_function":
            return
        self._replace(clone, source, values)

    def _uses_behind(self, node: Node, storage: int) -> list[Node]:
        """The nodes behind one that use a memory, in order; making a view of it is no use."""
        found = {
            user
            for member in self._nodes[storage]
            for user in member.users
            if self._position[user] > self._position[node] and viewed(user) is None
        }
        return sorted(found, key=self._position.__getitem__)

    def leave_out_scatter(self, scatter: Node) -> None:
        """Have the users of what replaces all of a tensor use what it is replaced with."""
        base, source, *_ = scatter.args
        assert isinstance(base, Node) and isinstance(source, Node)
        if _geometry(base.meta["val"]) != _geometry(source.meta["val"]):
            return
        if [str(x) for x in tree_leaves(scatter.args[2:])] != _geometry(base.meta["val"]):
            return
        values = self._values_on(source, scatter)
        if values is not None:
            self._replace(scatter, source, values)

    def _replace(self, node: Node, source: Node, values: Mapping[Node, torch.Tensor]) -> None:
        """Have the users of a node use another one of the same elements."""
        (old,), (new,) = self._found[node], self._found[source]
        node.replace_all_uses_with(source)
        self._erase(node)
        for view in self._nodes.pop(old):
            view.meta["val"] = values[view]
            self._found[view] = [new]
            self._nodes[new].append(view)
        self._nodes[new].sort(key=self._position.__getitem__)

    def _values_on(self, source: Node, old: Node) -> dict[Node, torch.Tensor] | None:
        """What a node and the views of it are where it is the source; None if that cannot be.

        Where the source has other strides, views are made anew. Operators may depend on strides.
        """
        base, given = source.meta["val"], old.meta["val"]
        members = self._nodes[self._found[old][0]]
        if any(not isinstance(node.meta["val"], torch.Tensor) for node in members):
            return None
        if any(node.meta["val"].dtype != given.dtype for node in members):
            return None
        values = {old: base}
        is_same = _strides(base) == _strides(given)
        if not is_same and not all(_is_of_any_strides(user) for n in members for user in n.users):
            return None
        with self._views():
            for node in members:
                if node is old:
                    continue
                value = node.meta["val"]
                if is_same:
                    offset = base.storage_offset() - given.storage_offset()
                    values[node] = torch.as_strided(
                        base, value.shape, value.stride(), value.storage_offset() + offset
                    )
                    continue
                viewed_node = node.args[0]
                assert isinstance(viewed_node, Node)
                if node.target in _WRITES:
                    values[node] = values[viewed_node]
                    continue
                if viewed(node) is None:
                    return None
                try:
                    values[node] = node.target(  # type: ignore[operator]
                        values[viewed_node], *node.args[1:], **node.kwargs
                    )
                except RuntimeError:
                    return None
        return values

    def _copies_back(self, node: Node, clone: Node, values: Mapping[Node, torch.Tensor]) -> bool:
        """Whether a node copies all of a changed clone to where it is a clone of.

        `values`: what the views of the clone are where it is its source.
        """
        if node.target is not aten.copy_.default:
            return False
        target, written = node.args[:2]
        source = clone.args[0]
        assert isinstance(source, Node)
        if not (isinstance(target, Node) and isinstance(written, Node)):
            return False
        if (self._found[target], self._found[written]) != (self._found[source], self._found[clone]):
            return False
        a, b = target.meta["val"], values[written]
        is_whole = str(b.numel()) == str(values[clone].numel())
        return is_whole and a.dtype == b.dtype and _geometry(a) == _geometry(b)

    def _erase(self, node: Node) -> None:
        for storage in self._found.pop(node):
            self._nodes[storage].remove(node)
        node.graph.erase_node(node)


def _is_of_any_strides(node: Node) -> bool:
    """Whether a node does and makes the same whatever the strides of its operands are."""
    return node.target in _WRITES or viewed(node) is not None or is_fusable(node)


def _written(launch: Node) -> Any:
    return launch.args[3]


def _storages(value: Any) -> Iterator[int]:
    for item in value if isinstance(value, (list, tuple)) else (value,):
        storage = storage_of(item)
        if storage is not None:
            yield storage


def _strides(tensor: torch.Tensor) -> list[str]:
    """As text, as below: comparing symbols would assume something."""
    return [str(stride) for stride in tensor.stride()]


def _geometry(tensor: torch.Tensor) -> list[str]:
    return [str(x) for x in (*tensor.shape, *tensor.stride(), tensor.storage_offset())]
