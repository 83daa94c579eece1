# SPDX-License-Identifier: Apache-2.0
"""The lines of Inductor's schedule as ops of Host IR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._inductor import ir
from torch._inductor.codegen import wrapper
from torch._inductor.codegen.wrapper import (
    AllocateLine,
    KernelCallLine,
    KernelDefinitionLine,
    ReinterpretLine,
    ReuseLine,
    UnbackedSymbolDefsLine,
)

from hostjit import _C
from hostjit.inductor.buffers import Buffers
from hostjit.inductor.cpp_kernels import ERRORS, CppKernel, add_kernels, parse_kernel
from hostjit.inductor.extern_calls import EXTERN_LINES, ExternCalls
from hostjit.inductor.schedule import Schedule, UnsupportedLineError
from hostjit.lowering.context import LoweringContext

__all__ = ["LineLowering"]

# Passes free memory; names of MultiOutputLine are bound with the call that has the outputs.
_SAY_NOTHING = (
    "CommentLine",
    "EnterDeviceContextManagerLine",
    "ExitDeviceContextManagerLine",
    "FreeIfNotReusedLine",
    "FreeLine",
    "MultiOutputLine",
    "NullLine",
    "SymbolicCallArgLine",
    "EnterDeviceContextManagerWithStreamInfoLine",
    "ExitDeviceContextManagerWithStreamInfoLine",
)
_IGNORED = tuple(getattr(wrapper, name) for name in _SAY_NOTHING if hasattr(wrapper, name))


class LineLowering:
    """Writes a program from a schedule, line by line."""

    def __init__(self, context: LoweringContext, schedule: Schedule) -> None:
        self._context = context
        self._schedule = schedule
        self._buffers = Buffers(context, schedule)
        self._calls = ExternCalls(context, schedule, self._buffers)
        self._defined: dict[str, CppKernel] = {}
        self._launched: dict[str, tuple[CppKernel, tuple[int, ...]]] = {}

    def bind_inputs(self, values: Sequence[_C.Value]) -> None:
        """Say which values the placeholders are."""
        for name, value in zip(self._schedule.inputs, values, strict=True):
            if name is not None:
                self._buffers.bind(name, value, is_written=True)

    def lower(self) -> None:
        """Write all lines."""
        for line in self._schedule.lines:
            self._lower(line)

    def results(self) -> list[_C.Value]:
        """Return the values of the graph's results, none of which shares memory with another."""
        return self._buffers.apart([self._buffers.value(node) for node in self._schedule.outputs])

    def add_kernels(self) -> None:
        """Compile the kernels that were launched, and add them to the program."""
        add_kernels(self._context.program, self._launched)

    def _lower(self, line: Any) -> None:
        match line:
            case AllocateLine(comm_buffer=False):
                self._buffers.allocate(line.node)
            case ReuseLine(comm_buffer=False):
                self._buffers.reuse(line.node, line.reused_as)
            case ReinterpretLine():
                self._buffers.reinterpret(line.reused_as, line.layout)
            case KernelDefinitionLine():
                kernel = parse_kernel(line.kernel_name, line.kernel_body)
                self._defined[line.kernel_name] = kernel
            case KernelCallLine():
                self._launch(line)
            case _ if type(line) in EXTERN_LINES:
                self._calls.lower(line)
            case UnbackedSymbolDefsLine() if not line.unbacked_bindings:
                pass
            case _ if not _says_nothing(line):
                raise UnsupportedLineError(f"there is no Host IR of Inductor's {_named(line)}")

    def _launch(self, line: KernelCallLine) -> None:
        kernel = self._defined[line.kernel_name]
        values = [
            self._buffers.named(argument) if is_tensor else self._index(argument)
            for argument, is_tensor in zip(line.call_args, kernel.is_tensor, strict=True)
        ]
        roles: dict[str, str] = {}
        for position, value in enumerate(values):
            if not kernel.is_tensor[position]:
                roles[value.name] = "scalars"
            elif kernel.is_read_only[position]:
                roles.setdefault(value.name, "inputs")
            else:
                # A kernel may write parts of a buffer.
                is_written = self._buffers.is_written(line.call_args[position])
                roles[value.name] = "in_out" if is_written else "outputs"
        by_name = {value.name: value for value in values}
        fields: dict[str, Any] = {"inputs": [], "in_out": [], "outputs": [], "scalars": []}
        for name, role in roles.items():
            fields[role].append(by_name[name])
        order = [value.name for role in fields.values() for value in role]
        places = tuple(order.index(value.name) for value in values)
        fields |= {"kernel": self._name(line.kernel_name, kernel, places), "errors": ERRORS}
        self._context.create("launch_kernel", fields)
        for argument, value in zip(line.call_args, values, strict=True):
            if roles[value.name] == "outputs":
                self._buffers.note_write(argument)

    def _name(self, name: str, kernel: CppKernel, places: tuple[int, ...]) -> str:
        """The name of a kernel in the program: one for each way to give its parameters."""
        entry = (kernel, places)
        candidates = (name, *(f"{name}_{number}" for number in range(len(self._launched))))
        found = next(
            candidate
            for candidate in candidates
            if self._launched.get(candidate, entry) == entry
            and (candidate == name or candidate not in self._defined)
        )
        self._launched[found] = entry
        return found

    def _index(self, name: str) -> _C.Value:
        return self._context.indices.value(self._buffers.size(self._schedule.size(name)))


def _says_nothing(line: Any) -> bool:
    if isinstance(line, str):
        return not line.strip() or line.strip().startswith("#")
    return isinstance(line, _IGNORED) or type(line).__name__ == "LineContext"


def _named(line: Any) -> str:
    if isinstance(line, str):
        return f"line '{line.strip()}'"
    node = getattr(line, "node", None)
    what = getattr(node, "python_kernel_name", None) or getattr(line, "kernel_name", None)
    if what is None and isinstance(node, ir.IRNode):
        what = type(node).__name__
    return f"{type(line).__name__} ({what})" if what else type(line).__name__
