# SPDX-License-Identifier: Apache-2.0
"""What Inductor leaves to operators of PyTorch, as nodes of the math library and ATen calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._inductor import ir
from torch._inductor.codegen.wrapper import (
    ExternKernelAllocLine,
    ExternKernelOutLine,
    IndexPutFallbackLine,
    ScatterFallbackLine,
)
from torch.fx import Graph, Node
from torch.utils._pytree import tree_map

from hostjit import _C
from hostjit.capturing.traced_graph import source_location
from hostjit.inductor.buffers import Buffers
from hostjit.inductor.schedule import Schedule, UnsupportedLineError
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.types import tensor_type

__all__ = ["EXTERN_LINES", "ExternCalls"]

EXTERN_LINES = (
    ExternKernelAllocLine,
    ExternKernelOutLine,
    IndexPutFallbackLine,
    ScatterFallbackLine,
)
aten = torch.ops.aten
# By operator, the node of the math library and the fields that its operands are.
_PRODUCTS = {
    aten.mm.out: ("matmul", ("lhs", "rhs")),
    aten.bmm.out: ("bmm", ("lhs", "rhs")),
    aten.addmm.out: ("addmm", ("bias", "lhs", "rhs")),
    aten.baddbmm.out: ("baddbmm", ("bias", "lhs", "rhs")),
}


class ExternCalls:
    """Writes calls of operators: the buffers that they take, write and make."""

    def __init__(self, context: LoweringContext, schedule: Schedule, buffers: Buffers) -> None:
        self._context = context
        self._schedule = schedule
        self._buffers = buffers
        # Nodes of no graph in particular, which stand for values as arguments of ATen calls.
        self._graph = Graph()
        self._nodes: dict[str, Node] = {}

    def lower(self, line: Any) -> None:
        """Write one of EXTERN_LINES."""
        node = line.node
        if not isinstance(node.op_overload, torch._ops.OpOverload):
            raise UnsupportedLineError(
                f"there is no Host IR of Inductor's call of {node.python_kernel_name}"
            )
        origin = node.get_origin_node()
        self._context.location = (source_location(origin) if origin else None) or ""
        match line:
            case ExternKernelOutLine():
                self._call_out(node)
            case IndexPutFallbackLine():
                operand, values = node.inputs[:2]
                arguments = (operand, line.indices, values, *node.constant_args[:1])
                self._call_in_place(node, arguments, {})
            case ScatterFallbackLine():
                self._call_scatter(node)
            case _:
                self._call(node)

    def _call_out(self, node: Any) -> None:
        out = self._buffers.value(node.output_view or node)
        if node.op_overload in _PRODUCTS:
            op, names = _PRODUCTS[node.op_overload]
            values = map(self._buffers.value, node.inputs)
            fields: dict[str, Any] = dict(zip(names, values, strict=True))
            factors = {name: float(node.kwargs.get(name, 1)) for name in ("beta", "alpha")}
            fields |= factors if "bias" in names else {}
            self._context.create(op, {**fields, "out": out})
        else:
            arguments = (*node.inputs, *node.constant_args)
            keywords = {**node.kwargs, "out": node.output_view or node}
            self._write(node.op_overload, arguments, keywords, self._fake(node))
        self._buffers.note_write(node.get_name())

    def _call(self, node: Any) -> None:
        if hasattr(node, "unflatten_args"):
            arguments, keywords = node.unflatten_args(node.inputs, node.constant_args)
        else:
            arguments, keywords = (*node.inputs, *node.constant_args), {}
        keywords = {**node.kwargs, **keywords}
        if isinstance(node.layout, ir.MultiOutputLayout):
            outputs = node.outputs
        else:
            outputs = None if isinstance(node.layout, ir.NoneLayout) else node
        fakes = _map_outputs(outputs, self._fake)
        call = self._write(node.op_overload, arguments, keywords, fakes)
        self._bind(call, outputs)

    def _call_in_place(self, node: Any, arguments: Any, keywords: dict[str, Any]) -> None:
        self._write(node.op_overload, arguments, keywords, self._fake(node.inputs[0]))

    def _call_scatter(self, node: Any) -> None:
        operand, index = node.inputs[:2]
        source = node.inputs[2] if node.src_is_tensor else node.constant_args[1]
        known = {argument.name for argument in node.op_overload._schema.arguments}
        keywords = {
            name: value
            for name, value in node.kwargs.items()
            if name in known and value is not None
        }
        arguments = (operand, node.constant_args[0], index, source)
        self._call_in_place(node, arguments, keywords)

    def _write(self, target: Any, arguments: Any, keywords: Any, result: Any) -> Node:
        """Write an ATen call; `result`: fake tensors like what it returns."""
        args = self._arguments(list(arguments))
        kwargs = self._arguments(dict(keywords))
        call = self._graph.call_function(target)
        call.args, call.kwargs = tuple(args), kwargs
        call.meta["val"] = result
        self._context.aten_call(call)
        return call

    def _arguments(self, arguments: Any) -> Any:
        """Arguments of Inductor's as those of an fx node."""
        return tree_map(self._argument, arguments, is_leaf=lambda a: isinstance(a, ir.IRNode))

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, ir.NoneAsConstantBuffer):
            return None
        if isinstance(argument, ir.IRNode):
            return self._node(self._buffers.value(argument))
        if isinstance(argument, sympy.Expr):
            return float(argument) if argument.is_Float else self._number(argument)
        return argument

    def _node(self, value: _C.Value) -> Node:
        """A node that stands for a value."""
        if value.name not in self._nodes:
            node = self._graph.placeholder(value.name)
            dtype = _C.torch_dtypes()[tensor_type(value).dtype]
            node.meta["val"] = torch.empty(0, dtype=dtype, device="meta")
            self._context.bind(node, value)
            self._nodes[value.name] = node
        return self._nodes[value.name]

    def _bind(self, call: Node, outputs: Any) -> None:
        """Give the results of a call the names of their buffers."""
        named: list[Any] = []
        _map_outputs(outputs, named.append)
        shared = [node for node in call.all_input_nodes if _returns_alias(call.target)]
        for output, value in zip(named, self._context.values(call), strict=True):
            self._buffers.bind(output.get_name(), value, is_written=True)
            if shared:
                self._buffers.note_view(value, self._context.value(shared[0]))

    def _fake(self, node: Any) -> torch.Tensor:
        """A fake tensor like that of an IR node."""
        sizes = [self._number(size) for size in node.get_size()]
        strides = [self._number(stride) for stride in node.get_stride()]
        dtype, device = node.get_dtype(), node.get_device()
        with self._schedule.fake_mode:
            return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    def _number(self, expression: Any) -> int | torch.SymInt:
        if isinstance(expression, int) or expression.is_Integer:
            return int(expression)
        environment = self._schedule.fake_mode.shape_env
        assert environment is not None
        number: int | torch.SymInt = environment.create_symintnode(expression, hint=None)
        return number


def _returns_alias(target: Any) -> bool:
    return any(result.alias_info is not None for result in target._schema.returns)


def _map_outputs(outputs: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to the tensors among what an operator returns."""
    if isinstance(outputs, ir.IRNode):
        return function(outputs)
    if isinstance(outputs, (list, tuple)):
        return [_map_outputs(output, function) for output in outputs]
    return outputs
