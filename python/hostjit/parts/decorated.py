# SPDX-License-Identifier: Apache-2.0
"""Functions that a decorator has wrapped: what the wrapper calls is a compiled function.

    @torch.no_grad()
    def act(self, observation): ...

Code that breaks off is split by its lines, and a wrapper has none of them. So the wrapper runs as
Python, and what it calls is compiled as if nothing were around it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

from torch._dynamo.bytecode_transformation import Instruction, cleaned_instructions
from torch._dynamo.eval_frame import skip_code

from hostjit.compiling.split_calls import function_and_receiver

__all__ = ["compiled_inside"]


Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def compiled_inside(
    target: Callable[..., Any], compile_it: Callable[[Callable[..., Any]], Compiled]
) -> tuple[Callable[..., Any], Compiled] | None:
    """Return what calls a decorated function or method with what is compiled within, and that.

    None for what no decorator has wrapped as `functools.wraps` and PyTorch's contexts do it, with a
    wrapper that does nothing with the function but call it.

    Args:
        target: the function or method.
        compile_it: returns what is called in place of what the decorator was given. It takes a
            method where the target is one.
    """
    function, receiver = function_and_receiver(target)
    wrapped = getattr(function, "__wrapped__", None)
    if function is None or type(wrapped) is not types.FunctionType:
        return None
    closure = function.__closure__ or ()
    cells = dict(zip(function.__code__.co_freevars, closure, strict=True))
    names = [name for name, cell in cells.items() if _content(cell) is wrapped]
    if len(names) != 1 or not _only_calls(function.__code__, names[0]):
        return None
    inside: Any = wrapped if not receiver else types.MethodType(wrapped, *receiver)
    cell, compiled = cells[names[0]], compile_it(inside)
    cells[names[0]] = types.CellType(_Inside(cell, wrapped, receiver, compiled))
    made = types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells.values()),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    skip_code(made.__code__)
    return (types.MethodType(made, *receiver) if receiver else made), compiled


class _Inside:
    """What a wrapper calls: a compiled function, while it would call what that was made of."""

    def __init__(
        self,
        cell: types.CellType,
        wrapped: types.FunctionType,
        receiver: tuple[Any, ...],
        compiled: Callable[..., Any],
    ) -> None:
        self._cell = cell
        self._wrapped = wrapped
        self._receiver = receiver
        self._compiled = compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self._cell.cell_contents
        if found is not self._wrapped:
            return found(*args, **kwargs)
        if not self._receiver:
            return self._compiled(*args, **kwargs)
        if args and args[0] is self._receiver[0]:
            return self._compiled(*args[1:], **kwargs)
        return found(*args, **kwargs)


skip_code(_Inside.__call__.__code__)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _only_calls(code: types.CodeType, name: str) -> bool:
    """Whether code does nothing with a variable of a function around it but call what it has."""
    instructions = cleaned_instructions(code)
    inside = (x for x in code.co_consts if isinstance(x, types.CodeType))
    uses = [i for i, found in enumerate(instructions) if found.argval == name]
    return not any(name in x.co_freevars for x in inside) and all(
        _is_called(instructions, i) for i in uses
    )


def _is_called(instructions: list[Instruction], index: int) -> bool:
    """Whether what an instruction puts on the stack is there to be called."""
    null = index + (1 if sys.version_info >= (3, 13) else -1)
    return instructions[index].opname == "LOAD_DEREF" and instructions[null].opname == "PUSH_NULL"
