# SPDX-License-Identifier: Apache-2.0
"""What Dynamo of torch 2.11 takes for constant, and does otherwise than Python: mended here.

Later ones don't.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dynamo.exc import (
    ObservedAttributeError,
    handle_observed_exception,
    raise_observed_exception,
    unimplemented,
)
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.source import AttrSource, TypeSource
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables import torch as torch_variables
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.functions import UserFunctionVariable, UserMethodVariable
from torch._dynamo.variables.lists import BaseListVariable, RangeVariable, TupleVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable
from torch.utils._device import _device_constructors

from hostjit.capturing.dynamo.attribute_reads import Read, replaced_reads
from hostjit.capturing.instances import is_namedtuple_type
from hostjit.replacements import replaced_attribute

__all__ = ["as_later_dynamo"]


@contextlib.contextmanager
def as_later_dynamo() -> Iterator[None]:
    """Have Dynamo do as later ones do, in this thread."""
    if torch.__version__ >= "2.12":
        yield
        return
    owner = threading.get_ident()
    with contextlib.ExitStack() as stack:
        _guard_attributes_of_classes(stack, owner)
        _guard_names_of_functions(stack, owner)
        _guard_elements_of_classes(stack, owner)
        _run_setters(stack, owner)
        stack.enter_context(_stopping_at_other_defaults(owner))
        stack.enter_context(_items_of_new_tuples(owner))
        _raise_for_absent_attributes(stack, owner)
        stack.enter_context(_truths_of_ranges(owner))
        stack.enter_context(replaced_reads(UserDefinedObjectVariable, _lengths(owner)))
        stack.enter_context(_modes_see_factories(owner))
        yield


def _guard_attributes_of_classes(stack: contextlib.ExitStack, owner: int) -> None:
    """Have numbers, texts and members of enums in classes guarded, as those in objects are."""
    original: Any = UserDefinedClassVariable.var_getattr

    def var_getattr(self: Any, tx: Any, name: str) -> Any:
        if threading.get_ident() == owner and self.source is not None:
            found = inspect.getattr_static(self.value, name, self)
            is_constant = ConstantVariable.is_literal(found) or isinstance(found, enum.Enum)
            if is_constant and name not in ("__name__", "__qualname__"):
                return VariableTracker.build(tx, found, AttrSource(self.source, name))
        return original(self, tx, name)

    stack.enter_context(replaced_attribute(UserDefinedClassVariable, "var_getattr", var_getattr))


def _guard_names_of_functions(stack: contextlib.ExitStack, owner: int) -> None:
    """Have the names of functions and of their modules guarded, as their other attributes are."""
    kind: Any = BuiltinVariable
    original = kind.call_getattr

    def call_getattr(self: Any, tx: Any, holder: Any, name: Any, *default: Any) -> Any:
        if threading.get_ident() == owner and name.is_python_constant():
            text, found = name.as_python_constant(), holder.realize()
            if text in ("__name__", "__module__") and type(found) is UserFunctionVariable:
                if found.source is not None:
                    source = AttrSource(found.source, text)
                    return VariableTracker.build(tx, getattr(found.fn, text), source)
        return original(self, tx, holder, name, *default)

    stack.enter_context(replaced_attribute(kind, "call_getattr", call_getattr))


def _guard_elements_of_classes(stack: contextlib.ExitStack, owner: int) -> None:
    """Ask the metaclass of a class for elements (`x in kind`), and guard that it has none."""
    original: Any = UserDefinedClassVariable.call_method

    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        is_asked = name == "__contains__" and threading.get_ident() == owner
        if is_asked and self.source and not hasattr(self.value, name):
            source = AttrSource(self.source, name)
            install_guard(source.make_guard(GuardBuilder.HASATTR))
        elif is_asked and self.source and not isinstance(self.value, enum.EnumMeta):
            found = inspect.getattr_static(type(self.value), name, None)
            if isinstance(found, types.FunctionType):
                source = AttrSource(TypeSource(self.source), name)
                function = VariableTracker.build(tx, found, source)
                return function.call_function(tx, [self, *args], kwargs)
        return original(self, tx, name, args, kwargs)

    stack.enter_context(replaced_attribute(UserDefinedClassVariable, "call_method", call_method))


def _run_setters(stack: contextlib.ExitStack, owner: int) -> None:
    """Trace what sets a property; what was assigned is taken for what is read otherwise."""
    original: Any = UserDefinedObjectVariable.method_setattr_standard

    def method_setattr_standard(self: Any, tx: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        text = name.as_python_constant() if name.is_python_constant() else ""
        descriptor = inspect.getattr_static(type(self.value), text, None)
        if threading.get_ident() == owner and isinstance(descriptor, property) and descriptor.fset:
            source = None
            if self.cls_source:
                source = AttrSource(self.get_source_by_walking_mro(text), "fset")
            setter = VariableTracker.build(tx, descriptor.fset, source)
            return setter.call_function(tx, [self, args[0]], {})
        return original(self, tx, name, *args, **kwargs)

    stack.enter_context(
        replaced_attribute(
            UserDefinedObjectVariable, "method_setattr_standard", method_setattr_standard
        )
    )


def _stopping_at_other_defaults(owner: int) -> contextlib.AbstractContextManager[Any]:
    """Stop at named tuples that somebody gave other defaults than their classes were made with."""
    original: Any = UserDefinedClassVariable.call_function

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() == owner and is_namedtuple_type(self.value):
            made_with = getattr(self.value, "_field_defaults", {})
            if tuple(made_with.values()) != (getattr(self.value.__new__, "__defaults__", ()) or ()):
                unimplemented(
                    gb_type="defaults of a named tuple",
                    context=str(self.value),
                    explanation="`__new__` has other defaults than the class was made with.",
                    hints=[],
                )
        return original(self, tx, args, kwargs)

    return replaced_attribute(UserDefinedClassVariable, "call_function", call_function)


def _items_of_new_tuples(owner: int) -> contextlib.AbstractContextManager[Any]:
    """Have tuples of users' classes made of items: its code asked an iterator for them twice.

    So `pair._replace(x=1)` was a named tuple of nothing.
    """
    original: Any = SideEffects.track_new_user_defined_object

    def track(self: Any, base: Any, kind: Any, init_args: list[Any]) -> Any:
        is_asked = threading.get_ident() == owner and issubclass(kind.value, tuple)
        if is_asked and init_args and not isinstance(init_args[0], BaseListVariable):
            tx = InstructionTranslator.current_tx()
            items = init_args[0].force_unpack_var_sequence(tx)
            init_args = [TupleVariable(items, mutation_type=ValueMutationNew()), *init_args[1:]]
        return original(self, base, kind, init_args)

    return replaced_attribute(SideEffects, "track_new_user_defined_object", track)


class _Length(UserMethodVariable):
    """The length of a container of a user's class, which C code tells; it was true in any case."""

    def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        return self.obj.call_method(tx, "__len__", list(args), kwargs)


def _lengths(owner: int) -> Callable[[Read], Read]:
    """Have `if container` ask what `len(container)` does."""

    def reading(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            kind = self.python_type()
            if name == "__len__" and threading.get_ident() == owner:
                if isinstance(getattr(kind, name, None), types.WrapperDescriptorType):
                    return _Length(_length, self)
            return original(self, tx, name)

        return read

    return reading


def _length(container: Any) -> int:
    return len(container)


def _raise_for_absent_attributes(stack: contextlib.ExitStack, owner: int) -> None:
    """Raise the AttributeError of a tensor in the code that is traced, which may handle it."""
    original: Any = TensorVariable.dynamic_getattr
    ask: Any = TensorVariable.call_obj_hasattr

    def dynamic_getattr(self: Any, tx: Any, name: str) -> Any:
        try:
            return original(self, tx, name)
        except AttributeError as error:
            if threading.get_ident() != owner:
                raise
            raise_observed_exception(AttributeError, tx, args=list(error.args))
            raise

    def call_obj_hasattr(self: Any, tx: Any, name: str) -> Any:
        try:
            return ask(self, tx, name)
        except ObservedAttributeError:
            handle_observed_exception(tx)
            return ConstantVariable.create(False)

    stack.enter_context(replaced_attribute(TensorVariable, "dynamic_getattr", dynamic_getattr))
    stack.enter_context(replaced_attribute(TensorVariable, "call_obj_hasattr", call_obj_hasattr))


def _truths_of_ranges(owner: int) -> contextlib.AbstractContextManager[Any]:
    """Have `n in range(5)` be a truth; it was how often the number is there."""
    original: Any = RangeVariable.call_method

    def call_method(self: Any, tx: Any, name: str, *args: Any) -> Any:
        found = original(self, tx, name, *args)
        is_asked = name == "__contains__" and threading.get_ident() == owner
        if is_asked and found.is_python_constant():
            return ConstantVariable.create(bool(found.as_python_constant()))
        return found

    return replaced_attribute(RangeVariable, "call_method", call_method)


def _modes_see_factories(owner: int) -> contextlib.AbstractContextManager[Any]:
    """Have modes asked for functions that make tensors, all of them: a default device is one."""
    original = torch_variables.get_overridable_functions
    functions = _with_factories(original)

    def get_overridable_functions() -> Any:
        return functions if threading.get_ident() == owner else original()

    return replaced_attribute(
        torch_variables, "get_overridable_functions", get_overridable_functions
    )


@functools.cache
def _with_factories(known: Callable[[], Any]) -> frozenset[Any]:
    return frozenset({*known(), torch.empty_like, torch.full_like, *_device_constructors()})
