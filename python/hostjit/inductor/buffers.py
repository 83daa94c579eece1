# SPDX-License-Identifier: Apache-2.0
"""The buffers of Inductor's schedule as values of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor import ir

from hostjit import _C
from hostjit.inductor.schedule import Schedule, UnsupportedLineError
from hostjit.kernels.sizes import Size
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.copies import copy_values
from hostjit.lowering.sizes import size_of_expression
from hostjit.lowering.types import dtype_name, tensor_type

__all__ = ["Buffers"]


class Buffers:
    """Values by the names of buffers, and which of them share memory."""

    def __init__(self, context: LoweringContext, schedule: Schedule) -> None:
        self._context = context
        self._schedule = schedule
        self._values: dict[str, _C.Value] = {}
        # Of a value, what it is a view of, by name.
        self._roots: dict[str, str] = {}
        self._written: set[str] = set()

    def bind(self, name: str, value: _C.Value, is_written: bool) -> None:
        """Make `value` the value of a buffer; `is_written`: whether it has contents."""
        self._values[name] = value
        if is_written:
            self._written.add(self._root(value))

    def named(self, name: str) -> _C.Value:
        """Return the value of a buffer."""
        if name not in self._values and name in self._schedule.graph.constants:
            self._values[name] = self._constant(self._schedule.graph.constants[name])
            self._written.add(self._root(self._values[name]))
        if name not in self._values:
            raise UnsupportedLineError(f"a kernel takes {name}, which is no buffer")
        return self._values[name]

    def value(self, node: Any) -> _C.Value:
        """Return the value of an IR node: of a buffer, or a view of one."""
        if isinstance(node, ir.MutableBox):
            return self.value(node.data)
        if isinstance(node, ir.ReinterpretView):
            return self._view(self.value(node.data), node.layout)
        if isinstance(node, ir.Buffer) and node.get_name() is not None:
            return self.named(node.get_name())
        raise UnsupportedLineError(f"there is no Host IR of Inductor's {type(node).__name__}")

    def allocate(self, node: Any) -> None:
        """Reserve memory for a buffer."""
        layout = node.get_output_spec() if hasattr(node, "get_output_spec") else node.layout
        value = self._context.create("allocate", {}, [self._type(layout)])
        self.bind(node.get_name(), value, is_written=False)

    def reuse(self, old: Any, new: Any) -> None:
        """Have a buffer take the memory of one that is not needed any more."""
        value = self._view(self.named(old.get_name()), new.layout)
        self.bind(new.get_name(), value, is_written=self.is_written(old.get_name()))

    def reinterpret(self, node: Any, layout: Any) -> None:
        """Have a buffer be the part of another that its layout says."""
        value = self.value(layout.view)
        self.bind(node.get_name(), value, is_written=self._root(value) in self._written)

    def is_written(self, name: str) -> bool:
        """Whether the memory of a buffer has contents."""
        return self._root(self.named(name)) in self._written

    def note_write(self, name: str) -> None:
        """Say that the memory of a buffer has contents."""
        self._written.add(self._root(self.named(name)))

    def note_view(self, view: _C.Value, source: _C.Value) -> None:
        """Say that a value shares memory with another."""
        self._roots[view.name] = self._root(source)

    def apart(self, values: Sequence[_C.Value]) -> list[_C.Value]:
        """Return values of which no two share memory, and none is an input: copies where needed."""
        taken = {value.name for value in self._context.program.inputs}
        result = []
        for value in values:
            if self._root(value) in taken:
                copy = self._context.create("allocate", {}, [value.type])
                copy_values(self._context, value, copy)
                value = copy
            taken.add(self._root(value))
            result.append(value)
        return result

    def sizes(self, expressions: Sequence[Any]) -> list[Size]:
        """Return sizes that Inductor has as expressions."""
        return [self.size(expression) for expression in expressions]

    def size(self, expression: Any) -> Size:
        """Return a size that Inductor has as an expression."""
        if isinstance(expression, int):
            return expression
        graph = self._schedule.graph
        known = graph.sizevars.inv_precomputed_replacements
        while expression.free_symbols & known.keys():
            expression = expression.xreplace(known)
        return size_of_expression(expression, self._schedule.fake_mode.shape_env)

    def _root(self, value: _C.Value) -> str:
        return self._roots.get(value.name, value.name)

    def _type(self, layout: Any) -> _C.TensorType:
        return self._context.indices.type(
            dtype_name(layout.dtype),
            self.sizes(layout.size),
            self.sizes(layout.stride),
            str(layout.device),
        )

    def _view(self, source: _C.Value, layout: Any) -> _C.Value:
        type_ = self._type(layout)
        offset = self.size(layout.offset)
        if type_ == source.type and offset == 0:
            return source
        if type_.dtype != tensor_type(source).dtype:
            raise UnsupportedLineError(
                f"a buffer of {tensor_type(source).dtype} is read as {type_.dtype}"
            )
        fields = {"source": source, "offset": self._context.indices.number(offset)}
        view: _C.Value = self._context.create("view", fields, [type_])
        self.note_view(view, source)
        return view

    def _constant(self, tensor: torch.Tensor) -> _C.Value:
        type_ = self._context.indices.type_of(tensor.contiguous())
        values = tensor.flatten().tolist()
        value: _C.Value = self._context.create("constant", {"values": values}, [type_])
        return value
