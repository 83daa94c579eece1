# SPDX-License-Identifier: Apache-2.0
"""What lowering rules write with: the program under construction and the values of fx nodes."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.fx.node import _side_effectful_functions

from hostjit import _C
from hostjit.kernels import PointwiseKernel
from hostjit.kernels.sizes import Size, as_size
from hostjit.lowering.index_values import IndexValues, input_type, number_name
from hostjit.lowering.literals import CallArguments
from hostjit.lowering.sizes import check_range, offset_of, size_of

if TYPE_CHECKING:
    from hostjit.kernels.cuda import CudaKernel
    from hostjit.launching import Kernel

__all__ = ["LoweringContext"]

# What capture puts before the path of an input: l_args_0_, l_hostjit_target_modules_0_bias_.
_INPUT_PREFIX = re.compile(r"^l_(hostjit_target_)?(modules_)?")


class LoweringContext:
    """A program under construction.

    Attributes:
        program: the Host IR program.
        devices: those that kernels are written for.
        location: "file:line" of the ops created from now on, or "".
        kernels: names of the kernels added so far.
        cuda_kernels: those launched on a CUDA device, by name; compiled and added in the end.
        user_kernels: those that the user brings, with the types of their parameters; likewise.
        indices: the sizes that are only known at the call.
        numbers: the floats that the call brings, by their names.
        buffers: what was allocated so far, in this region.
    """

    def __init__(self, name: str, devices: Set[torch.device]) -> None:
        self.program = _C.Program(name)
        self.devices = devices
        self.location = ""
        self._builder = _C.Builder(self.program)
        self._values: dict[Node, _C.Value] = {}
        self._tuples: dict[Node, list[_C.Value | None]] = {}
        self.kernels: set[str] = set()
        self.cuda_kernels: dict[str, CudaKernel] = {}
        self.user_kernels: dict[str, tuple[Kernel, tuple[str, ...]]] = {}
        self.buffers: set[_C.Value] = set()
        self.indices = IndexValues(self.create)
        self.numbers: Mapping[str, _C.Value] = {}

    def regions(self) -> dict[str, LoweringContext]:
        """Return contexts that write the regions of the op created last, by their names."""
        return {name: self._inside(builder) for name, builder in self._builder.regions().items()}

    def _inside(self, builder: _C.Builder) -> LoweringContext:
        inner = LoweringContext.__new__(LoweringContext)
        inner.program, inner.location, inner.kernels = self.program, self.location, self.kernels
        inner.devices, inner.cuda_kernels = self.devices, self.cuda_kernels
        inner.user_kernels = self.user_kernels
        inner.indices, inner.numbers, inner._builder = self.indices.inside(), self.numbers, builder
        inner._values, inner._tuples, inner.buffers = {}, {}, set()
        return inner

    def add_inputs(self, nodes: Sequence[Node]) -> None:
        """Make the placeholders the inputs of the program."""
        for node in nodes:
            value = node.meta["val"]
            if isinstance(value, torch.Tensor):
                name = _INPUT_PREFIX.sub("", node.name).strip("_").replace("_parameters_", "_")
                type_: _C.TensorType | str = input_type(value)
            else:
                # A second one that is the same gets another name.
                name = number_name(value)
                type_ = "f64" if isinstance(value, torch.SymFloat) else "index"
            self._values[node] = self.program.add_input(self._unused_name(name), type_)
        inputs = [(self._values[node], node.meta["val"]) for node in nodes]
        self.numbers = {value.name: value for value, of in inputs if isinstance(of, torch.SymFloat)}
        self.indices.define_inputs([(v, of) for v, of in inputs if v.name not in self.numbers])

    def _unused_name(self, name: str) -> str:
        taken = {value.name for value in self._values.values()}
        candidates = (name, *(f"{name}_{number}" for number in range(len(taken))))
        return next(candidate for candidate in candidates if candidate not in taken)

    def create(
        self,
        op: str,
        fields: dict[str, Any],
        result_types: Sequence[_C.TensorType | str] = (),
        names: Sequence[str] = (),
    ) -> Any:
        """Append one op; returns its result, a list of results, or None."""
        named = {"result_names": list(names)} if names else {}
        return self._builder.create(op, fields, list(result_types), self.location, **named)

    def add_kernel(self, name: str, text: str) -> None:
        """Add a kernel that launches name."""
        self.kernels.add(name)
        self.program.add_kernel(name, text)

    def value(self, node: Any) -> _C.Value:
        """Return the value of an fx node that produces one tensor."""
        assert isinstance(node, Node)
        return self._values[node]

    def has(self, node: Node) -> bool:
        """Tell whether an fx node that produces one tensor has a value."""
        return node in self._values

    def values(self, node: Node) -> list[_C.Value]:
        """Return the values of an fx node: of the tensors in its tuple, or the one that it is."""
        if node in self._values:
            return [self._values[node]]
        return [value for value in self._tuples[node] if value is not None]

    def result(self, value: Any) -> _C.Value:
        """Return the value of a result of the graph: an fx node, or a size.

        Raises CaptureError for a number that may be no int64.
        """
        number = value.meta.get("val") if isinstance(value, Node) else value
        if isinstance(number, torch.SymInt):
            check_range(number)
        if isinstance(value, torch.SymInt):
            index: _C.Value = self.indices.value(size_of(value))
            return index
        return self.value(value)

    def scalars(self, kernel: PointwiseKernel, numbers: Mapping[str, _C.Value]) -> list[_C.Value]:
        """Return what the scalar arguments and the symbols of a kernel are.

        `numbers` are scalar arguments by their names; the call brings the others.
        """
        known = {**self.numbers, **numbers}
        scalars = [known[scalar.name] for scalar in kernel.scalars()]
        return scalars + [self.indices.value(as_size(symbol)) for symbol in kernel.symbols()]

    def item(self, node: Node) -> _C.Value:
        """Take the number that a tensor without dims on the CPU holds here."""
        tensor = node.meta["val"]
        type_ = "f64" if tensor.dtype.is_floating_point else "index"
        value: _C.Value = self.create("item", {"source": self.value(node)}, [type_])
        return value

    def bind(self, node: Node, value: _C.Value) -> None:
        """Make `value` the value of `node`."""
        self._values[node] = value

    def allocate(self, node: Node) -> _C.Value:
        """Reserve memory for the result of `node` and bind it."""
        value = self.new_buffer(node.meta["val"])
        self.bind(node, value)
        return value

    def new_buffer(self, shape: torch.Tensor) -> _C.Value:
        """Reserve memory for a tensor like `shape`."""
        value: _C.Value = self.create("allocate", {}, [self.indices.type_of(shape)])
        self.buffers.add(value)
        return value

    def bind_all(self, node: Node, values: Sequence[_C.Value]) -> None:
        """Make `values` the values of `node`, whose value is a tuple."""
        self._tuples[node] = list(values)

    def view(self, node: Node, source: Node) -> None:
        """Bind `node` to a view of the memory of `source`, as their strides and offsets say."""
        self.bind(node, self._view(node.meta["val"], source))

    def views(self, node: Node, source: Node) -> None:
        """Bind `node`, whose value is a tuple, to views of the memory of `source`."""
        self._tuples[node] = [self._view(shape, source) for shape in node.meta["val"]]

    def _view(self, shape: torch.Tensor, source: Node) -> _C.Value:
        offset: Size = offset_of(shape) - offset_of(source.meta["val"])
        fields = {"source": self.value(source), "offset": self.indices.number(offset)}
        value: _C.Value = self.create("view", fields, [self.indices.type_of(shape)])
        return value

    def aten_call(self, node: Node) -> None:
        """Lower `node` to a call through PyTorch's dispatcher: right for every operator."""
        if node.target is operator.getitem:
            source, index = node.args
            assert isinstance(source, Node) and isinstance(index, int)
            items = source.meta["val"]
            before = sum(len(_flattened(item)) for item in items[:index])
            found = self._tuples[source][before : before + len(_flattened(items[index]))]
            if isinstance(items[index], (list, tuple)):
                self._tuples[node] = found
                return
            value = found[0]
            if value is not None:  # else nobody can use it
                self.bind(node, value)
            return
        target = node.target
        assert isinstance(target, torch._ops.OpOverload), f"{node.format_node()}"
        arguments = CallArguments(node, self.value, self.indices.value, self.numbers)
        returned = _returned(node)
        results = [value for value in returned if isinstance(value, torch.Tensor)]
        made = self.create(
            "aten_call",
            {
                "target": _schema_name(target),
                "inputs": arguments.inputs,
                "mutated": arguments.mutated,
                "arguments": arguments.literals,
                "aliases": arguments.aliases,
                "absent": [
                    position
                    for position, value in enumerate(returned)
                    if not isinstance(value, torch.Tensor)
                ],
                # Without a result it is called for its effect: checks, assertions.
                "pure": bool(results) and _is_pure(target),
            },
            [self.indices.type_of(result) for result in results],
        )
        values = [] if made is None else made if isinstance(made, list) else [made]
        if isinstance(node.meta.get("val"), torch.Tensor):
            self.bind(node, values[0])
        else:
            rest = iter(values)
            self._tuples[node] = [
                next(rest) if isinstance(value, torch.Tensor) else None for value in returned
            ]


def _returned(node: Node) -> list[Any]:
    """Return what the operator returns, those in lists after one another.

    Tensors are fake ones; anything else is no result of the call: a gradient that a mask turned
    off, a number.
    """
    value = node.meta.get("val")
    if value is None:
        return []
    if isinstance(value, torch.Tensor):
        return [value]
    return [x for item in _flattened(value) for x in _flattened(item)]


def _flattened(item: Any) -> list[Any] | tuple[Any, ...]:
    """Return the items of a list among results, or the one result."""
    return item if isinstance(item, (list, tuple)) else [item]


def _schema_name(target: torch._ops.OpOverload) -> str:
    schema = target._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def _is_pure(target: torch._ops.OpOverload) -> bool:
    """True when a call may go if nobody uses its results; unknown libraries get no such trust."""
    return (
        target.namespace in ("aten", "prims")
        and torch.Tag.nondeterministic_seeded not in target.tags
        and not target._schema.is_mutable
        and target not in _side_effectful_functions
    )
