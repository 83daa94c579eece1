# SPDX-License-Identifier: Apache-2.0
"""Launches of kernels that the user brings."""

from __future__ import annotations

import itertools
from typing import Any

from torch.fx import Node

from hostjit import _C
from hostjit.launching.launch_operator import words
from hostjit.launching.user_kernel import Kernel, kernel_of
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.registry import lowers
from hostjit.lowering.sizes import size_of

__all__: list[str] = []


@lowers("hostjit.launch_kernel.default")
def lower_launch(context: LoweringContext, node: Node) -> bool:
    """launch_kernel(kernel, read, written, numbers, shape) -> launch_kernel."""
    arguments: dict[str, Any] = dict(zip(_NAMES, node.args, strict=True))
    kernel = kernel_of(arguments["kernel"])
    if kernel.device == "cpu" and size_of(arguments["grid"][0]) == 0:
        return True
    read = dict(zip(arguments["read_at"], arguments["read"], strict=True))
    written = dict(zip(arguments["written_at"], arguments["written"], strict=True))
    values = {
        position: context.value(tensor) for position, tensor in sorted({**read, **written}.items())
    }
    in_out = _unique(values[position] for position in written)
    inputs = _unique(values[position] for position in read if values[position] not in in_out)
    operands = _Operands([*inputs, *in_out])
    found = words(kernel, values, arguments["integers"], arguments["floats"])
    types = list(kernel.types)
    for position, value in enumerate(found):
        if value is None:  # a null pointer, which has the bytes of a 0
            types[position], found[position] = "i64", 0
    for type_, value in zip(types, [*found, *[0] * kernel.hidden], strict=True):
        operands.add(value if type_ == "ptr" else _number(context, type_, value))
    fields = {
        "kernel": _add_kernel(context, kernel, types),
        "inputs": inputs,
        "in_out": in_out,
        "scalars": operands.scalars,
        "parameters": operands.positions,
    }
    if kernel.device == "cuda" or kernel.over_range:
        for extent in ("grid", "block"):
            fields[extent] = [context.indices.number(size_of(size)) for size in arguments[extent]]
    if kernel.device == "cuda":
        fields["cluster"] = list(arguments["cluster"])
        for name in ("shared_memory", "cooperative", "programmatic"):
            fields[name] = arguments[name]
    context.create("launch_kernel", fields)
    return True


_NAMES = (
    "kernel",
    "read",
    "read_at",
    "written",
    "written_at",
    "integers",
    "floats",
    "grid",
    "block",
    "shared_memory",
    "cluster",
    "cooperative",
    "programmatic",
)


class _Operands:
    """The operands of a launch: tensors, then scalars as they are met."""

    def __init__(self, tensors: list[_C.Value]) -> None:
        self._all = list(tensors)
        self.scalars: list[_C.Value] = []
        self.positions: list[int] = []

    def add(self, value: _C.Value) -> None:
        if value not in self._all:
            self._all.append(value)
            self.scalars.append(value)
        self.positions.append(self._all.index(value))


def _unique(values: Any) -> list[_C.Value]:
    return list(dict.fromkeys(values))


def _number(context: LoweringContext, type_: str, value: Any) -> _C.Value:
    if type_[0] == "i":
        return context.indices.value(size_of(value))
    number: _C.Value = context.create("float_constant", {"value": float(value)}, ["f64"])
    return number


def _add_kernel(context: LoweringContext, kernel: Kernel, types: list[str]) -> str:
    """Have the program bring a kernel with parameters of these types; returns its name there."""
    nulls = [
        position for position, type_ in enumerate(kernel.parameters) if type_ != types[position]
    ]
    name = "_".join((kernel.name, *(f"null{position}" for position in nulls)))
    # C functions of one form have one name: it is the same in every process.
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    taken = context.user_kernels
    name = next(word for word in candidates if taken.get(word, (kernel,))[0].has_code_of(kernel))
    context.user_kernels[name] = (kernel, tuple(types))
    return name
