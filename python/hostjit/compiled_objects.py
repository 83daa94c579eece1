# SPDX-License-Identifier: Apache-2.0
"""Compiled functions and bound Dims as Python objects: copied, pickled, met by Dynamo.

Compiled code does not travel: a copy compiles anew, at its first call.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable
from typing import Any

from torch._dynamo.guards import GuardBuilder
from torch._dynamo.source import AttrSource
from torch._dynamo.variables.builder import VariableBuilder

from hostjit import _C
from hostjit.dims import BoundDim

__all__ = ["register"]


def register() -> None:
    """Tell pickle, copy and Dynamo what a compiled function is."""
    copyreg.pickle(_C.CompiledFunction, _reduce)
    dispatch = getattr(VariableBuilder, "_type_dispatch_impl", None)
    tables = [dispatch(flag) for flag in (True, False)] if dispatch else []
    for table in tables or [VariableBuilder._type_dispatch()]:
        table[_C.CompiledFunction] = _follow
        table[BoundDim] = _take_for_int


def _reduce(compiled: _C.CompiledFunction) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    """A global of this name is pickled by name, as functions are; any other by what it compiles."""
    name = getattr(compiled, "__qualname__", None)
    if isinstance(name, str) and _global(compiled.__module__, name) is compiled:
        return name
    target, keywords = compiled.owner.arguments()
    return (_capture if compiled.owner.records else _compile), (target, keywords)


def _global(module: str, path: str) -> Any:
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _compile(target: Any, keywords: dict[str, Any]) -> Any:
    from hostjit.compile import compile

    return compile(target, **keywords)


def _capture(target: Any, keywords: dict[str, Any]) -> Any:
    from hostjit.recording import capture

    return capture(target, **keywords)


def _follow(builder: Any, compiled: _C.CompiledFunction) -> Any:
    """Trace a call of a compiled function as one of what it compiles: it becomes part of it."""
    builder.install_guards(GuardBuilder.TYPE_MATCH)
    wrapped = AttrSource(builder.source, "__wrapped__")
    return VariableBuilder(builder.tx, wrapped)(compiled.__wrapped__)


def _take_for_int(builder: Any, bound: BoundDim) -> Any:
    """Trace an int that a Dim binds as a plain one: a tensor is not compared with its class."""
    builder.install_guards(GuardBuilder.TYPE_MATCH)
    plain = AttrSource(builder.source, "real")
    return VariableBuilder(builder.tx, plain)(bound.real)
