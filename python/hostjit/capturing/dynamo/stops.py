# SPDX-License-Identifier: Apache-2.0
"""Where Dynamo would go on with something else than what the code says: it stops there.

An `autograd.Function` inside of `torch.func`'s transforms: it follows the forward alone, so that
a transform would differentiate that instead of running the function's own `backward`, `jvp` or
`vmap`.

What a tensor from outside was made by (`is_leaf`, `grad_fn`, `_base` ...), and the size of a
storage: it takes them for constants without a guard.

What an exception says that Python itself raises, or whose class says more than its arguments: it
has words of its own. What Python's own methods, or a `__repr__` that `str` asks, say of an object
of the user's, and what `dir` lists of a class: it takes that for a constant without a guard.

And it takes `n in range(5)` for an int, and where a view starts for a constant whose guard lets
others pass: both are corrected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from hostjit.capturing.dynamo.attribute_reads import Read, replaced_reads
from hostjit.capturing.instances import HEAP_TYPE
from hostjit.replacements import replaced_attribute, replaced_items

__all__ = ["mark_own_words", "stopping"]

# Of tensors that need gradients: parameters are leaves, and nothing else than that.
_OF_AUTOGRAD = frozenset({"is_leaf", "grad_fn", "retains_grad", "output_nr"})
_OF_EVERY_EXCEPTION = frozenset(
    {"__class__", "__context__", "__cause__", "__suppress_context__", "__traceback__"}
)
_TELLING = (str, repr, format, ascii, str.format)
# Of Dynamo's variable for an exception.
_HAS_OWN_WORDS = "_hostjit_has_own_words"
_OF_HOOKS = frozenset({"_backward_hooks", "_post_accumulate_grad_hooks"})


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Have Dynamo stop, in this thread."""
    owner = threading.get_ident()
    with contextlib.ExitStack() as stack:
        for patch in _patches(lambda: threading.get_ident() == owner):
            stack.enter_context(patch)
        yield


def _patches(here: Callable[[], bool]) -> list[contextlib.AbstractContextManager[Any]]:
    from torch._dynamo.exc import unimplemented
    from torch._dynamo.variables import ExceptionVariable
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.lists import RangeVariable
    from torch._dynamo.variables.misc import AutogradFunctionVariable
    from torch._dynamo.variables.tensor import TensorVariable, UntypedStorageVariable

    apply = AutogradFunctionVariable.call_apply
    call_storage = UntypedStorageVariable.call_method

    def call_apply(self: Any, tx: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if torch._C._functorch.peek_interpreter_stack() is not None and here():
            unimplemented(
                gb_type="autograd.Function in a transform",
                context=self.fn_cls.__qualname__,
                explanation="A transform runs a function's own backward, jvp or vmap.",
                hints=[],
            )
        return apply(self, tx, args, kwargs)

    def reading_tensors(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            if self.source is not None and _is_of_the_past(self, name) and here():
                unimplemented(
                    gb_type="history of a tensor",
                    context=f"{self} {name}",
                    explanation=f"`{name}` depends on what was done with a tensor before the call.",
                    hints=[],
                )
            return original(self, tx, name)

        return read

    def call_method(self: Any, tx: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name == "size" and here():
            unimplemented(
                gb_type="size of a storage",
                context=str(self),
                explanation="A storage may be larger than the tensors that use it.",
                hints=[],
            )
        return call_storage(self, tx, name, args, kwargs)

    call_builtin = BuiltinVariable.call_function

    def call_function(self: Any, tx: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if self.fn in _TELLING:
            for value in (*args, *kwargs.values()):
                exception = _exception(value)
                if exception is not None and not _says_as_eager(exception, value) and here():
                    stop_at_text(exception)
                if exception is None and _says_what_it_holds(value, self.fn) and here():
                    unimplemented(
                        gb_type="text of an object",
                        context=str(value),
                        explanation="Dynamo does not guard what is in the object.",
                        hints=[],
                    )
        if self.fn is dir and len(args) == 1 and _may_gain_names(args[0]) and here():
            unimplemented(
                gb_type="names of a class",
                context=str(args[0]),
                explanation="Dynamo does not guard which attributes a class has.",
                hints=[],
            )
        return call_builtin(self, tx, args, kwargs)

    def reading_exceptions(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            if name not in _OF_EVERY_EXCEPTION and not _says_as_eager(self, self) and here():
                stop_at_text(self)
            return original(self, tx, name)

        return read

    contains = getattr(RangeVariable, "sq_contains", None)  # torch 2.13 and later

    def sq_contains(self: Any, tx: Any, item: Any) -> Any:
        assert contains is not None
        found = contains(self, tx, item)
        if found.is_python_constant() and here():
            return ConstantVariable.create(bool(found.as_python_constant()))
        return found

    def stop_at_text(exception: Any) -> None:
        unimplemented(
            gb_type="text of an exception",
            context=str(exception.exc_type),
            explanation="What it says when it runs is not known.",
            hints=[],
        )

    corrected = [replaced_attribute(RangeVariable, "sq_contains", sq_contains)] if contains else []
    return [
        *corrected,
        *_starts_of_views(here),
        *_marked_words(),
        replaced_attribute(BuiltinVariable, "call_function", call_function),
        replaced_reads(ExceptionVariable, reading_exceptions),
        replaced_attribute(AutogradFunctionVariable, "call_apply", call_apply),
        replaced_reads(TensorVariable, reading_tensors),
        replaced_attribute(UntypedStorageVariable, "call_method", call_method),
    ]


def _starts_of_views(here: Callable[[], bool]) -> list[contextlib.AbstractContextManager[Any]]:
    """Have `storage_offset` followed as other methods are, as it is up to torch 2.14."""
    from torch._dynamo.variables.tensor import TensorVariable

    name = "storage_offset"
    listed: dict[str, Any] = getattr(TensorVariable, "tp_methods", {})
    if name not in listed:
        return []
    constant = listed[name]

    def offset(variable: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        return None if here() else constant.handler(variable, tx, *args, **kwargs)

    return [replaced_items(listed, {name: dataclasses.replace(constant, handler=offset)})]


def mark_own_words(exception: Any) -> None:
    """Mark an exception of Dynamo's whose text is not what Python's says."""
    setattr(exception, _HAS_OWN_WORDS, True)


def _marked_words() -> list[contextlib.AbstractContextManager[Any]]:
    """Mark exceptions that Dynamo raises in place of Python; the code may raise them again.

    From torch 2.14 on it does that by the method that is for `raise`, too.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    names = ("do_raise", "_attach_traceback_to_exception")
    found = [name for name in names if hasattr(InstructionTranslatorBase, name)]
    if not found:
        return []
    original = getattr(InstructionTranslatorBase, found[0])

    def do_raise(self: Any, value: Any, *args: Any) -> Any:
        is_new = value is not None and getattr(value, "python_stack", None) is None
        if is_new and self.current_instruction.opname != "RAISE_VARARGS":
            mark_own_words(value)
        return original(self, value, *args)

    return [replaced_attribute(InstructionTranslatorBase, found[0], do_raise)]


def _is_of_the_past(tensor: Any, name: str) -> bool:
    """Tell whether an attribute of a tensor is not known from what guards compare."""
    if name in _OF_HOOKS:
        return bool(tensor.requires_grad)
    if name in _OF_AUTOGRAD:
        return bool(tensor.requires_grad) and not issubclass(tensor.class_type, nn.Parameter)
    return name == "_base" and not issubclass(tensor.class_type, nn.Parameter)


def _may_gain_names(variable: Any) -> bool:
    from torch._dynamo.variables import UserDefinedClassVariable

    is_class = isinstance(variable.realize(), UserDefinedClassVariable)
    return is_class and bool(variable.realize().value.__flags__ & HEAP_TYPE)


def _exception(value: Any) -> Any:
    """Return Dynamo's exception of the built-in kind that `value` is, or is made of."""
    from torch._dynamo.variables import ExceptionVariable

    value = getattr(value, "_base_vt", None) or value
    return value if isinstance(value, ExceptionVariable) else None


def _says_what_it_holds(value: Any, teller: Any) -> bool:
    """Tell whether Dynamo asks an object of the user's for its text, instead of following code."""
    from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

    found = value.realize()
    if not isinstance(found, UserDefinedObjectVariable):
        return False
    if getattr(found, "_base_vt", None) is None and found.is_python_constant():
        return False
    kind = type(found.value)
    says: Any = kind.__repr__ if teller in (repr, ascii) else kind.__str__
    return not hasattr(says, "__code__")


def _says_as_eager(exception: Any, value: Any) -> bool:
    """Tell whether the code itself raised an exception, of a class that says its arguments."""
    kind = exception.exc_type
    is_plain = kind.__str__ is BaseException.__str__ and kind.__repr__ is BaseException.__repr__
    both = (exception, value)
    is_raised = any(getattr(x, "python_stack", None) is not None for x in both)
    is_raised = is_raised and not any(hasattr(x, _HAS_OWN_WORDS) for x in both)
    return is_plain and is_raised and not isinstance(kind.__init__, types.FunctionType)
