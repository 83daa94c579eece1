# SPDX-License-Identifier: Apache-2.0
"""Views as address arithmetic: which buffer a node shares, and where its elements lie in it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from hostjit.capturing.dynamic_dims import is_symbolic
from hostjit.kernels.sizes import Size, at_most
from hostjit.lowering.sizes import element_count, offset_of, shape_of, strides_of

__all__ = ["Access", "Views", "is_tensor", "viewed"]

# Elements of the result of these may coincide in other ways than by repeating all of them.
_OVERLAPPING = {"aten.as_strided.default", "aten.unfold.default", "aten.diagonal.default"}
# The schema says that the result is new; functional graphs only use it where it may be shared.
_SHARING = {"aten._unsafe_view.default", "aten.unsafe_split.Tensor"}


@dataclass(frozen=True)
class Access:
    """Where the elements of a node lie in the buffer of `root`, counted in elements."""

    root: Node
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size


def is_tensor(node: Node) -> bool:
    """Tell whether a node's value is one tensor."""
    return isinstance(node.meta.get("val"), torch.Tensor)


class Views:
    """Follows chains of view nodes to their root by running them on meta tensors.

    A root is any node that is no view: a graph input, or an operator that makes its own result.
    `mode` gives what they run under, as `symbolic_views` says.
    """

    def __init__(self, mode: Callable[[], AbstractContextManager[Any]] = nullcontext) -> None:
        self._mode = mode
        self._actual: dict[Node, tuple[Node, Any]] = {}
        self._dense: dict[Node, Any] = {}

    def access(self, node: Node) -> Access:
        """The place of a tensor node's elements in its root's buffer."""
        root, value = self._follow(node)
        return Access(root, shape_of(value), strides_of(value), offset_of(value))

    def root(self, node: Node) -> Node:
        return self._follow(node)[0]

    def is_view(self, node: Node) -> bool:
        """Whether a node (also one with several results) only renames another's elements."""
        return self.root(node) is not node

    def dense(self, node: Node) -> Access | None:
        """The place of a node's elements in its root's row-major order; None if irregular."""
        value = self._follow_dense(node)
        if not isinstance(value, torch.Tensor):
            return None
        return Access(self.root(node), shape_of(value), strides_of(value), offset_of(value))

    def one_to_one(self, node: Node) -> Access | None:
        """The place of a node's elements in its root's row-major order, if it is a reordering.

        None where the chain repeats, leaves out or regroups elements in a way that is no regular
        walk over the root's logical positions.
        """
        access = self.dense(node)
        if access is None or access.offset != 0:
            return None
        if math.prod(access.shape) != element_count(access.root.meta["val"]):
            return None
        moving = zip(access.shape, access.strides, strict=True)
        repeats = any(stride == 0 and not at_most(size, 1) for size, stride in moving)
        return None if repeats else access

    def _follow(self, node: Node) -> tuple[Node, Any]:
        if node not in self._actual:
            self._actual[node] = self._view_of_source(node) or (node, self._meta(node))
        return self._actual[node]

    def _view_of_source(self, node: Node) -> tuple[Node, Any] | None:
        source = viewed(node)
        if source is None:
            return None
        root, value = self._follow(source)
        if value is None:
            return None
        # as_strided counts from the storage's start, where a graph input need not begin.
        if str(node.target) == "aten.as_strided.default" and offset_of(root.meta["val"]) != 0:
            return None
        try:
            result = self._apply(node, value)
        except RuntimeError:
            return None
        return (root, result) if _shares(result, value) else None

    def _follow_dense(self, node: Node) -> Any:
        """The node's view of a root in row-major order; None if it is not one."""
        if node not in self._dense:
            self._dense[node] = self._dense_view(node)
        return self._dense[node]

    def _dense_view(self, node: Node) -> Any:
        if not self.is_view(node):
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                return None
            with self._mode():
                return torch.empty(value.shape, dtype=value.dtype, device="meta")
        source = viewed(node)
        assert source is not None
        value = self._follow_dense(source)
        if value is None:
            return None
        if str(node.target) == "aten.as_strided.default":
            return self._restrided(node, self._follow(source)[1], value)
        if str(node.target) in _OVERLAPPING:
            return None
        try:
            result = self._apply(node, value)
        except RuntimeError:
            return None
        return result if _shares(result, value) else None

    def _restrided(self, node: Node, source: Any, dense: Any) -> Any:
        """The view of `dense` where `as_strided` is a view or an expansion of its source.

        It may have other strides of dimensions of one element: capture says so what eager's are.
        """
        found = self._follow(node)[1]
        if is_symbolic(found) or is_symbolic(source):
            return None
        for view in (torch.Tensor.view, torch.Tensor.expand):
            try:
                expected, result = view(source, found.shape), view(dense, found.shape)
            except RuntimeError:
                continue
            if _same_places(expected, found):
                return result
        return None

    def _meta(self, node: Node) -> torch.Tensor | None:
        """A tensor without data, laid out as the node's, that starts at its storage's start."""
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return None
        with self._mode():
            return torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device="meta"
            )

    def _apply(self, node: Node, value: Any) -> Any:
        target = node.target
        assert callable(target)
        with self._mode():
            return target(value, *node.args[1:], **node.kwargs)


def _same_places(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether tensors of one shape have each element at the same place of a storage."""
    strides = zip(a.shape, a.stride(), b.stride(), strict=True)
    return a.storage_offset() == b.storage_offset() and all(
        size == 1 or first == second for size, first, second in strides
    )


def viewed(node: Node) -> Node | None:
    """The node that `node` may be a view of."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    if len(node.all_input_nodes) != 1:
        return None
    if node.target is operator.getitem:
        # A tuple of tensors of an operator is no view of it; those of `split` are.
        return node.args[0]
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    schema = node.target._schema
    if schema.is_mutable:
        return None
    aliases = any(a.alias_info is not None for a in schema.arguments[:1])
    return node.args[0] if aliases or str(node.target) in _SHARING else None


def _shares(result: Any, source: Any) -> bool:
    """Whether the results lie in the storage of the source and keep its type."""
    results = result if isinstance(result, tuple | list) else [result]
    sources = source if isinstance(source, tuple | list) else [source]
    storage = sources[0].untyped_storage()._cdata
    return all(
        isinstance(item, torch.Tensor)
        and item.untyped_storage()._cdata == storage
        and item.dtype is sources[0].dtype
        and not item.is_neg()
        for item in results
    )
