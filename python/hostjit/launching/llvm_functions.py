# SPDX-License-Identifier: Apache-2.0
"""Functions in LLVM IR: text, what llvmlite has built, and Python functions that build one."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit import _C
from hostjit.launching.parameters import Parameters

__all__ = ["build_function", "is_llvmlite", "parameters_in_text", "text_of_llvmlite"]

_NUMBERS = {
    "i8": ir.IntType(8),
    "i16": ir.IntType(16),
    "i32": ir.IntType(32),
    "i64": ir.IntType(64),
    "f32": ir.FloatType(),
    "f64": ir.DoubleType(),
}
# Of elements as they lie in memory; those of other dtypes have no type of their own in LLVM.
_ELEMENTS = {**_NUMBERS, "bool": ir.IntType(8), "f16": ir.HalfType(), "bf16": ir.IntType(16)}
_ELEMENTS |= {f"u{bits}": ir.IntType(bits) for bits in (8, 16, 32, 64)}


def is_llvmlite(code: Any) -> bool:
    """Tell whether code is a function or a module that llvmlite has built."""
    return isinstance(code, (ir.Function, ir.Module))


def text_of_llvmlite(code: Any, entry: str | None) -> tuple[str, str]:
    """The text of a function or module of llvmlite, and the name of the kernel there."""
    if isinstance(code, ir.Function):
        if entry not in (None, code.name):
            raise ValueError(f"kernel: entry is {entry!r}, but the function is '{code.name}'")
        return str(code.module), code.name
    if entry is None:
        names = [function.name for function in code.functions if not function.is_declaration]
        if len(names) != 1:
            raise ValueError(
                f"kernel: entry is missing, expected one of the functions of the module: "
                f"{', '.join(names)}"
            )
        (entry,) = names
    return str(code), entry


def parameters_in_text(text: str, entry: str) -> list[str]:
    """The types of the parameters of a function in LLVM IR.

    Raises ValueError, with the line of LLVM's diagnostic, for a text that is no kernel for this
    machine.
    """
    try:
        return _C.parameters_in_text(text, entry)
    except _C.Error as error:
        raise ValueError(str(error)) from None


def build_function(
    build: Any, entry: str, parameters: Sequence[str] | None, *, over_range: bool
) -> str:
    """The text of a function whose body a Python function builds.

    Args:
        build: called with an `llvmlite.ir.IRBuilder` at the entry of the function, and its
            parameters. What it leaves without an end returns.
        entry: the name of the function.
        parameters: their types. A pointer with a dtype points at the type of its elements.
        over_range: there are two more, i64.

    Raises: ValueError without parameters, and what `build` raises.
    """
    who = f"kernel '{entry}'"
    if parameters is None:
        raise ValueError(f"{who}: parameters is missing, expected the type of each parameter")
    words = [*Parameters(who, parameters).words, *("i64", "i64") * over_range]
    module = ir.Module(entry)
    signature = ir.FunctionType(ir.VoidType(), [_type(word) for word in words])
    function = ir.Function(module, signature, entry)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    try:
        names = list(inspect.signature(build).bind(builder, *function.args).arguments)
    except TypeError as error:
        raise TypeError(
            f"{who}: its Python function is called with a builder and {len(words)} parameters: "
            f"{error}"
        ) from None
    if len(names) == 1 + len(words):
        for argument, name in zip(function.args, names[1:], strict=True):
            argument.name = name
    result = build(builder, *function.args)
    if result is not None:
        raise TypeError(
            f"{who}: its Python function returned a {type(result).__qualname__}, expected None: "
            "it writes to its pointers"
        )
    if not builder.block.is_terminated:
        builder.ret_void()
    return str(module)


def _type(word: str) -> Any:
    if not word.endswith("*"):
        return _NUMBERS.get(word, ir.PointerType())
    element = _ELEMENTS.get(word[:-1])
    return ir.PointerType() if element is None else element.as_pointer()
