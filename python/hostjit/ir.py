# SPDX-License-Identifier: Apache-2.0
"""Host IR from Python: build, print, parse, verify, compile and run programs.

Example:
    program = hostjit.ir.parse(text)
    compiled = hostjit.ir.CompiledProgram(program)
    (y,) = compiled.run([x])
"""

from hostjit._C import (
    Builder,
    CompiledProgram,
    Op,
    Operand,
    Program,
    Symbol,
    TensorType,
    Value,
    parse,
)

__all__ = [
    "Builder",
    "CompiledProgram",
    "Op",
    "Operand",
    "Program",
    "Symbol",
    "TensorType",
    "Value",
    "parse",
]
