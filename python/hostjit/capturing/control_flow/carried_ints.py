# SPDX-License-Identifier: Apache-2.0
"""Ints that a `while_loop` carries: tensors of int64 without dims in graphs of Dynamo's.

Eager runs such a loop with Python's ints, and returns ints. In the graph they are symbols that
nothing is known of. A graph is rewritten only where tensors in their place mean the same: what is
computed fits into 64 bits (see `int_ranges`), an operator that takes a number has a result of the
type that it had, and no size follows from one.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node

from hostjit.capturing.dynamic_dims import is_number
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.numbers.int_ranges import IntRanges, TooLargeError
from hostjit.capturing.traced_graph import attribute_of, placeholder_values

__all__ = ["carry_ints_in_tensors"]

_operators = torch.ops.higher_order

# Of Python's operators on ints, those that mean the same for tensors.
_OF_INTS = frozenset(
    {
        *(operator.add, operator.sub, operator.mul, operator.neg, operator.abs, abs),
        *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
        *(operator.and_, operator.or_, torch.sym_max, torch.sym_min, torch.sym_not),
    }
)
_DIVIDE = frozenset({operator.floordiv, operator.mod})
# Of a tensor and a number.
_OF_TENSORS = frozenset(
    {
        *(operator.add, operator.sub, operator.mul, operator.truediv),
        *(operator.iadd, operator.isub, operator.imul),
        *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
        *(torch.add, torch.sub, torch.mul, torch.div, torch.where),
        *("add", "sub", "mul", "div", "add_", "sub_", "mul_"),
        *("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"),
    }
)
# Such that a number and a tensor without dims make the same result of them, and the same error.
_DTYPES = frozenset({torch.float32, torch.float64, torch.int64, torch.bool})


class _CannotError(Exception):
    """Tensors in place of the ints would mean something else."""


def carry_ints_in_tensors(
    module: GraphModule, fake_mode: Any
) -> tuple[GraphModule, tuple[int, ...]] | None:
    """Return a graph whose loops carry tensors, and which of its results are to be made ints.

    Returns None where no loop carries an int, or the graph has to stay as it is.
    """
    if fake_mode is None or not _has_loop(module):
        return None
    try:
        rewritten = _Rewriting(module, (), fake_mode, IntRanges())
    except (_CannotError, TooLargeError):
        return None
    results = module.graph.output_node().args[0]
    assert isinstance(results, (tuple, list))
    counted = [index for index, node in enumerate(results) if node in rewritten.counted]
    return rewritten.finish(rewritten.of(results)), tuple(counted)


def _has_loop(module: Any) -> bool:
    """Whether a loop in a graph, or in a region of it, carries an int."""
    if not isinstance(module, GraphModule):
        return False
    parts = [part for part in module.modules() if isinstance(part, GraphModule)]
    nodes = [node for part in parts for node in part.graph.nodes if _is_loop(node)]
    return any(_is_int(value) for node in nodes for value in node.args[2])


def _is_int(value: Any) -> bool:
    return type(value) is int or isinstance(_example(value), torch.SymInt)


def _example(value: Any) -> Any:
    return value.meta.get("example_value") if isinstance(value, Node) else value


class _Rewriting:
    """Copies a graph, in which some of what was an int, or made of such, is a tensor.

    Attributes:
        counted: the nodes of the original of which that is so.
    """

    def __init__(
        self, module: GraphModule, given: Sequence[bool], fake_mode: Any, ranges: IntRanges
    ) -> None:
        """Copy all but the output. `given`: which of the first placeholders are counted."""
        self._module = module
        self._fake_mode = fake_mode
        self._ranges = ranges
        self._graph = Graph()
        self._copies: dict[Node, Any] = {}
        self._regions: dict[str, GraphModule] = {}
        self.counted: set[Node] = set()
        inputs = module.graph.find_nodes(op="placeholder")
        self._given = {node for node, is_given in zip(inputs, given, strict=False) if is_given}
        for node in module.graph.nodes:
            if node.op != "output":
                self._copies[node] = self._rewrite(node)

    def of(self, value: Any) -> Any:
        """Return what stands for nodes of the original."""
        return torch.fx.node.map_arg(value, self._copies.__getitem__)

    def finish(self, results: Any) -> GraphModule:
        """Return the copy with these results."""
        self._graph.output(results)
        names = {str(node.target) for node in self._graph.find_nodes(op="get_attr")}
        kept = {n: attribute_of(self._module, n) for n in names if n not in self._regions}
        module = graph_module({**kept, **self._regions}, self._graph)
        module.meta.update(self._module.meta)
        return module

    def tensor(self, value: Any) -> Node:
        """Return a tensor for an int of the original, be it one already."""
        if isinstance(value, Node) and value in self.counted:
            copy: Node = self._copies[value]
            return copy
        if not _is_int(value):
            raise _CannotError
        kind: dict[str, Any] = {"dtype": torch.int64, "device": "cpu"}
        made = self._graph.call_function(torch.full, ((), self.of(value)), kind)
        made.meta["example_value"] = self._fake(torch.int64)
        return made

    def _rewrite(self, node: Node) -> Node:
        if node in self._given:
            return self._count(node, self._graph.node_copy(node))
        if node.target is _operators.while_loop and not node.kwargs:
            return self._loop(node)
        if node.target is operator.getitem and _is_loop(node.args[0]):
            return self._item(node)
        used = [value for value in node.all_input_nodes if value in self.counted]
        operands = cast("tuple[Any, ...]", node.args)
        regions = [attribute_of(self._module, r.target) for r in operands if _is_region(r)]
        if not used and not any(map(_has_loop, regions)):
            return self._graph.node_copy(node, self._copies.__getitem__)
        if node.target in (_operators.cond, _operators.map_impl, _operators.scan):
            return self._call_regions(node)
        example = _example(node)
        if isinstance(example, (torch.SymInt, torch.SymBool)):
            return self._compute(node)
        if not isinstance(example, torch.Tensor) or not _takes_tensors(node, self.counted):
            raise _CannotError
        return self._graph.node_copy(node, self._copies.__getitem__)

    def _count(self, node: Node, copy: Node) -> Node:
        self.counted.add(node)
        example = _example(node)
        self._ranges.check(example)
        is_int = isinstance(example, torch.SymInt)
        copy.meta["example_value"] = self._fake(torch.int64 if is_int else torch.bool)
        return copy

    def _fake(self, dtype: torch.dtype) -> torch.Tensor:
        with self._fake_mode:
            return torch.empty((), dtype=dtype, device="cpu")

    def _compute(self, node: Node) -> Node:
        """Compute an int or a truth of what is counted."""
        target: Any = node.target
        if node.op == "call_method":  # of torch 2.11, `__abs__`
            target = getattr(operator, target, None)
        if target in _DIVIDE:
            divisor = node.args[1]
            if not isinstance(divisor, int) or divisor == 0:
                raise _CannotError  # Python has its own error for 0
        elif target is operator.pow:
            if not isinstance(node.args[1], int) or node.args[1] < 0:
                raise _CannotError
        elif target not in _OF_INTS:
            raise _CannotError
        if any(isinstance(arg, bool) or isinstance(_example(arg), float) for arg in node.args):
            raise _CannotError
        args: list[Any] = [self.of(arg) for arg in node.args]
        if target in (torch.sym_max, torch.sym_min):
            args = [self.tensor(arg) for arg in node.args]
            target = torch.maximum if target is torch.sym_max else torch.minimum
        elif target is torch.sym_not:
            target = torch.logical_not
        return self._count(node, self._graph.call_function(target, tuple(args)))

    def _item(self, node: Node) -> Node:
        """Take a result of a loop."""
        copy = self._graph.node_copy(node, self._copies.__getitem__)
        return self._count(node, copy) if is_number(_example(node)) else copy

    def _call_regions(self, node: Node) -> Node:
        """Call an operator whose regions read what is counted, or `cond` on it."""
        *before, last = cast("tuple[Any, ...]", node.args)
        if any(value in self.counted for value in _nodes_in(before[1:])):
            raise _CannotError
        given = [value in self.counted for value in last]
        replaced: dict[Node, Node] = {}
        for region in (value for value in before if _is_region(value)):
            module: Any = attribute_of(self._module, str(region.target))
            # The operands are the last that a region takes.
            count = len(module.graph.find_nodes(op="placeholder")) - len(given)
            inside = self._inside(module, [False] * count + given)
            results = module.graph.output_node().args[0]
            if any(value in inside.counted for value in _nodes_in(results)):
                raise _CannotError
            replaced[region] = self._region(region, inside.finish(inside.of(results)))
        return self._graph.node_copy(node, lambda old: replaced.get(old) or self._copies[old])

    def _loop(self, node: Node) -> Node:
        condition, body, carried, additional = cast("tuple[Any, ...]", node.args)
        ints = [index for index, value in enumerate(carried) if _is_int(value)]
        given = [*map(_is_int, carried), *(value in self.counted for value in additional)]
        if not any(given):
            return self._graph.node_copy(node, self._copies.__getitem__)
        asked, done = (attribute_of(self._module, region.target) for region in (condition, body))
        (goes_on,), results = (module.graph.output_node().args for module in (asked, done))
        results = results[0]
        named = [placeholder_values(done), placeholder_values(asked), _example(node)]
        self._ranges.note_loop(
            [_example(carried[index]) for index in ints],
            [_example(results[index]) for index in ints],
            [[names[index] for index in ints] for names in named],
        )
        asking, step = (self._inside(module, given) for module in (asked, done))
        if goes_on not in asking.counted and not isinstance(_example(goes_on), torch.Tensor):
            raise _CannotError
        made = tuple(
            step.tensor(value) if index in ints else step.of(value)
            for index, value in enumerate(results)
        )
        starts = tuple(
            self.tensor(value) if index in ints else self.of(value)
            for index, value in enumerate(carried)
        )
        regions = (
            self._region(condition, asking.finish(asking.of(goes_on))),
            self._region(body, step.finish(made)),
        )
        copy = self._graph.call_function(
            _operators.while_loop, (*regions, starts, self.of(tuple(additional)))
        )
        copy.meta.update(node.meta)
        copy.meta["example_value"] = tuple(
            self._fake(torch.int64) if index in ints else value
            for index, value in enumerate(_example(node))
        )
        self.counted.add(node)
        return copy

    def _inside(self, module: GraphModule, given: Sequence[bool]) -> _Rewriting:
        return _Rewriting(module, given, self._fake_mode, self._ranges)

    def _region(self, original: Any, module: GraphModule) -> Node:
        name = f"{original.target}_{len(self._regions)}_of_tensors".replace(".", "_")
        self._regions[name] = module
        return self._graph.get_attr(name)


def _is_loop(value: Any) -> bool:
    return isinstance(value, Node) and value.target is _operators.while_loop


def _is_region(value: Any) -> bool:
    return isinstance(value, Node) and value.op == "get_attr"


def _nodes_in(values: Any) -> list[Node]:
    found: list[Node] = []
    torch.fx.node.map_arg(values, found.append)
    return found


def _takes_tensors(node: Node, counted: set[Node]) -> bool:
    """Whether an operator on tensors means the same with tensors in place of its numbers."""
    if node.target not in _OF_TENSORS or node.kwargs:
        return False
    numbers = [arg for arg in node.args if arg in counted]
    tensors = [arg for arg in node.args if isinstance(_example(arg), torch.Tensor)]
    if len(numbers) != 1 or len(numbers) + len(tensors) != len(node.args):
        return False
    return isinstance(_example(numbers[0]), torch.SymInt) and all(
        tensor.dtype in _DTYPES and tensor.device.type == "cpu" for tensor in map(_example, tensors)
    )
