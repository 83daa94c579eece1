# SPDX-License-Identifier: Apache-2.0
"""Compiled functions and bound Dims that Dynamo meets."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import AttrSource
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.functions import (
    FunctoolsPartialVariable,
    UserFunctionVariable,
    UserMethodVariable,
)
from torch._dynamo.variables.misc import SuperVariable
from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

from hostjit import _C
from hostjit.capturing.dynamo.attribute_reads import Read, replaced_reads
from hostjit.capturing.instances import instance_dict, is_a
from hostjit.dims import BoundDim

__all__ = ["register"]


def register() -> None:
    """Tell Dynamo what a compiled function and a bound Dim are."""
    dispatch = getattr(VariableBuilder, "_type_dispatch_impl", None)
    tables = [dispatch(flag) for flag in (True, False)] if dispatch else []
    for table in tables or [VariableBuilder._type_dispatch()]:
        table[_C.CompiledFunction] = _follow
        table[_C.CompiledContainer] = _follow
        table[_C.CompiledMethod] = _follow_method
        table[BoundDim] = _take_for_int
    replaced_reads(UserDefinedObjectVariable, _binding).__enter__()
    of_base: Any = SuperVariable
    of_base._resolved_getattr_and_source = _unwrapping(of_base._resolved_getattr_and_source)


def _follow(builder: Any, compiled: _C.CompiledFunction) -> Any:
    """Trace a call of a compiled function as one of what it compiles: it becomes part of it."""
    builder.install_guards(GuardBuilder.TYPE_MATCH)
    wrapped = AttrSource(builder.source, "__wrapped__")
    return VariableBuilder(builder.tx, wrapped)(compiled.__wrapped__)


def _follow_method(builder: Any, method: _C.CompiledMethod) -> Any:
    """Trace a call of a method as one of what was compiled, with the object that it is bound to."""
    builder.install_guards(GuardBuilder.TYPE_MATCH)
    instance = VariableBuilder(builder.tx, AttrSource(builder.source, "__self__"))(method.__self__)
    return _bound(builder.tx, method.__func__, builder.source, instance)


def _bound(tx: Any, function: _C.CompiledFunction, source: Any, instance: Any) -> Any:
    """Bind a compiled function. `source`: of the method; None where there is none."""
    if source is None and isinstance(function.__wrapped__, types.FunctionType):
        return _method(UserFunctionVariable(function.__wrapped__), instance)
    followed = VariableBuilder(tx, AttrSource(source, "__func__"))(function)
    if type(followed) is UserFunctionVariable:
        return _method(followed, instance)
    return FunctoolsPartialVariable(followed, [instance], {})


def _method(function: Any, instance: Any) -> Any:
    make: Any = UserMethodVariable
    if "im_func" in inspect.signature(make.__init__).parameters:  # torch 2.15 and later
        return make(function, instance)
    return make(function.fn, instance, source_fn=function.source)


def _binding(original: Read) -> Read:
    """Have Dynamo bind compiled functions that it finds in the class of an object.

    It takes a descriptor of C code for the attribute itself.
    """

    @functools.wraps(original)
    def read(self: Any, tx: Any, name: str) -> Any:
        found = inspect.getattr_static(type(self.value), name, None)
        if not is_a(found, _C.CompiledFunction) or name in (instance_dict(self.value) or {}):
            return original(self, tx, name)
        source = None if self.source is None else AttrSource(self.source, name)
        return _bound(tx, found, source, self)

    return read


def _unwrapping(original: Callable[..., Any]) -> Callable[..., Any]:
    """Have Dynamo take compiled functions for what they compile where `super()` finds them."""

    @functools.wraps(original)
    def resolve(self: Any, tx: Any, name: str) -> tuple[Any, Any]:
        found, source = original(self, tx, name)
        if not is_a(found, _C.CompiledFunction):
            return found, source
        if not isinstance(found.__wrapped__, types.FunctionType):
            return found, source
        if source is None:  # of an object that the call makes
            return found.__wrapped__, None
        install_guard(source.make_guard(GuardBuilder.TYPE_MATCH))
        return found.__wrapped__, AttrSource(source, "__wrapped__")

    return resolve


def _take_for_int(builder: Any, bound: BoundDim) -> Any:
    """Trace an int that a Dim binds as a plain one: a tensor is not compared with its class."""
    builder.install_guards(GuardBuilder.TYPE_MATCH)
    plain = AttrSource(builder.source, "real")
    return VariableBuilder(builder.tx, plain)(bound.real)
