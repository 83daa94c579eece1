# SPDX-License-Identifier: Apache-2.0
"""Numbers that code reads from tensors for a list alone: `self.losses.append(loss.item())`.

Dynamo stops where a number is read, and what it leaves on the stack there is a method of the list,
another object at each call, which nothing is compiled for. A list that code only adds to gets its
number once the graph ran; nothing else sees it before.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.bytecode_transformation import create_call_method
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.misc import NullVariable
from torch._dynamo.variables.tensor import TensorVariable

from hostjit.capturing.dynamo.growing_lists import GrowingVariable
from hostjit.capturing.dynamo.method_handlers import Handler, method_of, replaced_handler
from hostjit.replacements import replaced_attribute

__all__ = ["logging_numbers"]

# Between the code of one call and that of the next.
_NO_OPERATION = ("CACHE", "EXTENDED_ARG", "NOP", "PRECALL")


class LoggedNumberVariable(VariableTracker):
    """Stands for the number in a tensor without dims that the code changes no more."""

    def __init__(self, tensor: TensorVariable, **options: Any) -> None:
        super().__init__(**options)
        self.tensor = tensor

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.tensor)
        codegen.load_method("item")
        codegen.extend_output(create_call_method(0))


@contextlib.contextmanager
def logging_numbers() -> Iterator[None]:
    """Have Dynamo go on where a list takes such a number, in this thread."""
    owner = threading.get_ident()
    call_builtin = BuiltinVariable.call_function

    def reading(follow: Handler) -> Handler:
        def item(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
            is_asked = threading.get_ident() == owner and not args and not kwargs
            number = _for_list(self, tx) if is_asked else None
            return follow(self, tx, *args, **kwargs) if number is None else number

        return item

    def builtin(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.fn in (float, int) and len(args) == 1 and threading.get_ident() == owner:
            tensor = args[0].realize()
            if isinstance(tensor, TensorVariable) and _type(tensor) is self.fn:
                number = _for_list(tensor, tx)
                if number is not None:
                    return number
        return call_builtin(self, tx, args, kwargs)

    with (
        replaced_handler(TensorVariable, "item", reading),
        replaced_attribute(BuiltinVariable, "call_function", builtin),
    ):
        yield


def _for_list(tensor: Any, tx: Any) -> LoggedNumberVariable | None:
    """Return what stands for the number in a tensor; None where a list is not all that takes it."""
    whole = tx.output.current_tracer.parent is None
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    if not whole or transformed or _type(tensor) is None or not _is_appended(tx):
        return None
    kept = tensor.call_method(tx, "detach", [], {})
    return LoggedNumberVariable(kept.call_method(tx, "clone", [], {}))


def _type(tensor: Any) -> type | None:
    """Return the type of the number in a tensor, None if it has none or several."""
    value = tensor.as_proxy().node.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or value.dim() != 0 or value.dtype.is_complex:
        return None
    if value.dtype is torch.bool:
        return bool
    return float if value.dtype.is_floating_point else int


def _is_appended(tx: Any) -> bool:
    """Whether a list that code only adds to waits for what the call gives that is followed now."""
    if tx.instruction_pointer is None or not tx.stack:
        return False
    # From CPython 3.13 on a null is above what is called, and not below.
    called = (each for each in reversed(tx.stack) if not isinstance(each, NullVariable))
    waiting = method_of(next(called, None))
    if waiting is None or not isinstance(waiting[0], GrowingVariable):
        return False
    if waiting[1] not in ("append", "appendleft"):
        return False
    following = (
        instruction
        for instruction in tx.instructions[tx.instruction_pointer :]
        if instruction.opname not in _NO_OPERATION
    )
    now = next(following, None)
    return now is not None and now.opname == "CALL" and now.arg == 1
