# SPDX-License-Identifier: Apache-2.0
"""What a node of Host IR moves and computes, by the types of its operands."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from hostjit import _C

__all__ = ["node_bytes", "node_flops", "node_result"]

# Ops that look at no element.
_NO_DATA = {
    "allocate",
    "deallocate",
    "constant",
    "view",
    "select",
    "size",
    "range_push",
    "range_pop",
}
_WRITTEN = {"out", "outputs", "in_out", "mutated", "result", "results"}
_READ_TOO = {"in_out", "mutated"}


def node_bytes(op: _C.Op) -> int:
    """Return the bytes of the tensors that a node reads, and of those it writes.

    Each operand counts once, with its own elements: those that a stride of 0 repeats once, those of
    a table of which a node looks up a part all.
    """
    if op.name in _NO_DATA:
        return 0
    read = set()
    written = set()
    for field, value in _tensors(op):
        if field in _WRITTEN:
            written.add(value)
        if field not in _WRITTEN or field in _READ_TOO:
            read.add(value)
    if op.fields.get("aliases"):  # results are views of operands
        written -= set(op.results)
    return sum(_bytes_of(value.type) for values in (read, written) for value in values)


def node_flops(op: _C.Op) -> int | None:
    """Return the additions and multiplications of a matrix product, a convolution or attention.

    None for any other node. The bias of a product is not counted.
    """
    match op.name:
        case "linear":
            return _multiply_adds(op.out, op.weight)
        case "matmul" | "addmm" | "bmm" | "baddbmm":
            return _multiply_adds(op.out, op.lhs)
        case "aten_call":
            return _flops_of_operator(op)
    return None


def node_result(op: _C.Op) -> str:
    """Return the dtypes and sizes of what a node writes: "f32[2, 16]"."""
    return " ".join(
        f"{value.type.dtype}{value.type.dims}" for field, value in _tensors(op) if field in _WRITTEN
    )


def _multiply_adds(out: _C.Value, factor: _C.Value) -> int:
    """Return the operations of a product that sums over the last dim of `factor`."""
    assert isinstance(out.type, _C.TensorType) and isinstance(factor.type, _C.TensorType)
    return 2 * math.prod(_sizes(out.type)) * _sizes(factor.type)[-1]


def _tensors(op: _C.Op) -> Iterator[tuple[str, Any]]:
    for field, content in op.fields.items():
        for value in content if isinstance(content, list) else [content]:
            if isinstance(value, _C.Value) and isinstance(value.type, _C.TensorType):
                yield field, value


def _bytes_of(tensor: _C.TensorType) -> int:
    sizes = zip(tensor.dims, tensor.strides, strict=True)
    elements = math.prod(int(size) if stride or not size else 1 for size, stride in sizes)
    return elements * _C.torch_dtypes()[tensor.dtype].itemsize


def _flops_of_operator(op: _C.Op) -> int | None:
    from torch.utils.flop_counter import flop_registry

    qualified, _, overload = op.target.partition(".")
    namespace, _, name = qualified.partition("::")
    operator = getattr(getattr(torch.ops, namespace), name)
    formula = flop_registry.get(operator)
    if formula is None or not op.results:
        return None
    operands = [*op.inputs, *op.mutated]

    # The formulas take sizes for tensors.
    def argument(literal: Any) -> Any:
        if isinstance(literal, list):
            return [argument(item) for item in literal]
        if isinstance(literal, _C.Operand):
            tensor = operands[literal.index].type
            return _sizes(tensor) if isinstance(tensor, _C.TensorType) else None
        return literal

    schema = getattr(operator, overload or "default")._schema
    arguments = [argument(literal) for literal in op.arguments]
    named = list(zip(schema.arguments, arguments, strict=True))
    positional = [value for parameter, value in named if not parameter.kwarg_only]
    keywords = {parameter.name: value for parameter, value in named if parameter.kwarg_only}
    return int(formula(*positional, **keywords, out_val=_sizes(op.results[0].type)))


def _sizes(tensor: _C.TensorType) -> torch.Size:
    return torch.Size([int(size) for size in tensor.dims])
