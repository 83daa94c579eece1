# SPDX-License-Identifier: Apache-2.0
"""Complex numbers as pairs of real ones, for kernels, which know no others.

Of an operator on complex tensors the graph gets the real and the imaginary part of its result, as
operators on the parts of its operands. What others take, a result or the operand of a transform, is
put together from the parts again; what comes from memory has them as views.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import corresponding_real_dtype, elementwise_dtypes
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.capturing.traced_graph import copy_of, remove_dead_nodes
from hostjit.lowering.devices import CPU, device_of
from hostjit.lowering.members import is_fusable
from hostjit.lowering.pointwise import PROMOTION, named_arguments
from hostjit.lowering.registry import Registry
from hostjit.lowering.sizes import symbolic_views
from hostjit.lowering.views import viewed

__all__ = ["CannotPartError", "Number", "Pair", "PartsContext", "in_parts", "with_complex_in_parts"]

aten = torch.ops.aten

# Of an operator's operand: a tensor, or a number that is known.
Number = Node | int | float
# The real and the imaginary part.
Pair = tuple[Number, Number]
Rule = Callable[["PartsContext"], Pair | Node]

# Rules that write an operator on complex tensors with operators on their parts.
in_parts: Registry[Rule] = Registry("rule of complex parts")

_COMPLEX = (torch.complex64, torch.complex128)


class CannotPartError(Exception):
    """An operator, or a tensor, stays whole."""


def with_complex_in_parts(graph: Graph, *, is_own: bool) -> Graph:
    """Return a graph that computes with the parts of complex tensors where it can.

    `is_own`: the graph is the caller's own, and is changed; another is copied, if need be.
    """
    if not any(_is_complex(node) for node in graph.nodes):
        return graph
    if not is_own:
        graph = copy_of(graph)
    _Parts(graph).run()
    remove_dead_nodes(graph)
    return graph


class PartsContext:
    """What a rule sees of a node."""

    def __init__(self, parts: _Parts, node: Node) -> None:
        self._parts = parts
        self.node = node
        self.arguments = named_arguments(node)
        self._dtype: torch.dtype | None = None

    def pairs(self, *names: str) -> list[Pair]:
        """Return the parts of operands, of the dtype that they are promoted to."""
        operands = [self.arguments[name] for name in names]
        values = [x.meta["val"] if isinstance(x, Node) else x for x in operands]
        if not all(isinstance(x, torch.Tensor | int | float | complex) for x in values):
            raise CannotPartError
        dtype, _ = elementwise_dtypes(*values, type_promotion_kind=PROMOTION.DEFAULT)
        if dtype not in _COMPLEX:
            raise CannotPartError
        self._dtype = corresponding_real_dtype(dtype)
        return [self._pair(operand) for operand in operands]

    def _pair(self, operand: Any) -> Pair:
        if isinstance(operand, complex):
            return operand.real, operand.imag
        if not isinstance(operand, Node):
            return operand, 0.0
        if operand.meta["val"].dtype in _COMPLEX:
            real, imaginary = self._parts.of(operand)
            return self._converted(real), self._converted(imaginary)
        return self._converted(operand), 0.0

    def _converted(self, part: Node) -> Node:
        if part.meta["val"].dtype is self._dtype:
            return part
        return self.call(aten._to_copy.default, part, dtype=self._dtype)

    def parts(self, name: str) -> tuple[Node, Node]:
        """Return the parts of a complex operand as they are."""
        return self.parts_of(self.arguments[name])

    def parts_of(self, operand: Any) -> tuple[Node, Node]:
        """Return the parts of a complex tensor as they are."""
        if not isinstance(operand, Node) or operand.meta["val"].dtype not in _COMPLEX:
            raise CannotPartError
        return self._parts.of(operand)

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Add a call of an operator to the graph."""
        return self._parts.call(self.node, target, args, kwargs)

    def full(self, number: float) -> Node:
        """Return a number as a tensor without dims."""
        return self.call(aten.full.default, [], number, dtype=self._dtype, device=CPU)

    def tensor(self, number: Number) -> Node:
        """Return an operand as a tensor, a number as one without dims."""
        return number if isinstance(number, Node) else self.full(number)

    def add(self, x: Number, y: Number) -> Number:
        """Return `x + y`."""
        if isinstance(x, Node):
            return self.call(aten.add.Tensor, x, y)
        return self.call(aten.add.Tensor, y, x) if isinstance(y, Node) else x + y

    def sub(self, x: Number, y: Number) -> Number:
        """Return `x - y`."""
        if isinstance(x, Node):
            return self.call(aten.sub.Tensor, x, y)
        return self.call(aten.rsub.Scalar, y, x) if isinstance(y, Node) else x - y

    def mul(self, x: Number, y: Number) -> Number:
        """Return `x * y`."""
        if isinstance(x, Node):
            return self.call(aten.mul.Tensor, x, y)
        return self.call(aten.mul.Tensor, y, x) if isinstance(y, Node) else x * y


class _Parts:
    """The complex tensors of a graph, and their parts."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._mode = _mode_of(graph)
        self._known: dict[Node, tuple[Node, Node]] = {}
        self._in_memory: dict[Node, tuple[Node, Node]] = {}
        self._pairs: dict[Node, Node] = {}  # in memory
        # Of views of parts in memory, the same elements where they are computed.
        self._computed: dict[Node, Node] = {}
        self._at = graph.output_node()

    def run(self) -> None:
        """Write all operators that can be with parts."""
        for node in [*self._graph.nodes]:
            if node.op != "call_function" or not _is_tensor_of_cpu(node):
                continue
            self._at = node
            rule = in_parts.find(node.target)
            try:
                if viewed(node) is not None:
                    self._note_view(node)
                elif rule is not None and any(map(_is_complex, (node, *node.all_input_nodes))):
                    self._replace(node, rule(PartsContext(self, node)))
                else:
                    self._take_computed(node)
            except Exception as error:
                # Whatever goes wrong with the parts, the whole is computed.
                raise_of_handler(error)

    def of(self, node: Node) -> tuple[Node, Node]:
        """Return the parts of a complex tensor; raises CannotPartError."""
        if node in self._known:
            return self._known[node]
        if node not in self._in_memory:
            value = node.meta["val"]
            if value.layout is not torch.strided or value.is_conj() or value.is_neg():
                raise CannotPartError
            if node not in self._pairs:
                self._pairs[node] = self.call(node, aten.view_as_real.default, (node,), {})
            pairs = self._pairs[node]
            real, imaginary = (self.call(node, aten.select.int, (pairs, -1, i), {}) for i in (0, 1))
            self._in_memory[node] = real, imaginary
        return self._in_memory[node]

    def call(self, of: Node, target: Any, args: Any, kwargs: Any) -> Node:
        """Add a call to the graph, for a node."""
        values: Any = map_arg((args, kwargs), lambda operand: operand.meta["val"])
        with self._mode(), torch.no_grad():
            made = target(*values[0], **values[1])
        with self._graph.inserting_before(self._at):
            node = self._graph.call_function(target)
        node.args, node.kwargs = args, kwargs  # PyTorch warns of sizes among those that are given
        node.meta.update(of.meta)
        node.meta["val"] = made
        return node

    def _note_view(self, node: Node) -> None:
        """Note the parts of a view, or, of a view of parts, where they are computed."""
        (source,), target, value = node.all_input_nodes, node.target, node.meta["val"]
        if target is aten.view_as_real.default:
            if source.target is aten._conj.default:  # twice, or there would be no such view
                (conjugate,) = source.all_input_nodes
                if conjugate.target is aten._conj.default:
                    node.args = tuple(conjugate.all_input_nodes)
            self._pairs.setdefault(node.all_input_nodes[0], node)
        elif target is aten._conj.default:
            real, imaginary = self.of(source)
            self._known[node] = real, self.call(node, aten.neg.default, (imaginary,), {})
        elif target is aten._neg_view.default:
            part = self._computed.get(source, source)
            self._computed[node] = self.call(node, aten.neg.default, (part,), {})
        elif target is aten.select.int and source.target is aten.view_as_real.default:
            (whole,) = source.all_input_nodes
            if node.args[1] in (-1, value.dim()) and whole in self._known:
                self._computed[node] = self._known[whole][node.args[2]]  # type: ignore[index]
        elif target is aten.as_strided.default or value.dtype is not source.meta["val"].dtype:
            return
        elif source in self._computed:
            self._computed[node] = self._viewed(node, source, self._computed[source])
        elif source in self._known:
            real, imaginary = (self._viewed(node, source, part) for part in self._known[source])
            self._known[node] = real, imaginary

    def _viewed(self, node: Node, source: Node, part: Node) -> Node:
        """Return a view of a part as a node is one of its source."""
        args, kwargs = map_arg((node.args, node.kwargs), lambda x: part if x is source else x)
        return self.call(node, node.target, args, kwargs)

    def _take_computed(self, node: Node) -> None:
        """Have a node of a kernel take parts where they are computed, not from memory."""
        if not any(operand in self._computed for operand in node.all_input_nodes):
            return
        given = node.args, node.kwargs
        node.args, node.kwargs = map_arg(given, lambda x: self._computed.get(x, x))
        if not is_fusable(node):
            node.args, node.kwargs = given

    def _replace(self, node: Node, made: Pair | Node) -> None:
        """Put what a rule has made in place of a node; raises CannotPartError."""
        value, parts = node.meta["val"], None
        if not isinstance(made, Node):
            parts = self._whole(node, made[0]), self._whole(node, made[1])
            made = self.call(node, aten.complex.default, parts, {})
        if _geometry(made.meta["val"]) != _geometry(value):
            raise CannotPartError
        made.meta["val"] = value
        node.replace_all_uses_with(made)
        self._graph.erase_node(node)
        if parts is not None:
            self._known[made] = parts

    def _whole(self, node: Node, part: Number) -> Node:
        """Return a part of all elements of a node."""
        value = node.meta["val"]
        dtype = corresponding_real_dtype(value.dtype)
        if not isinstance(part, Node):
            settings = {"dtype": dtype, "device": value.device}
            return self.call(node, aten.full.default, ([*value.shape], part), settings)
        if [*map(str, part.meta["val"].shape)] == [*map(str, value.shape)]:
            return part
        return self.call(node, aten.expand.default, (part, [*value.shape]), {})


def _is_tensor_of_cpu(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor) and device_of(node) == CPU


def _is_complex(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in _COMPLEX


def _mode_of(graph: Graph) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """What operators on the values of a graph run under."""
    found = symbolic_views(graph)
    values = (node.meta.get("val") for node in graph.nodes)
    mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    return found if found is not contextlib.nullcontext or mode is None else lambda: mode


def _geometry(tensor: torch.Tensor) -> list[str]:
    return [str(tensor.dtype), *map(str, (*tensor.shape, *tensor.stride()))]
