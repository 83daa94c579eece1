# SPDX-License-Identifier: Apache-2.0
"""Code that is no more than Python: it keeps books of numbers, texts and containers.

That is the rest of many functions: `self.losses.append(loss)`, `return action, {"mean": mean}`. To
compare all that it reads would take longer than to run it.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import dis
import inspect
import json
import logging
import math
import operator
import statistics
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any

from torch._dynamo.bytecode_transformation import Instruction, cleaned_instructions

from hostjit import _C
from hostjit.bytecode.flow import CodeFlow

__all__ = ["is_plain_python"]

_MODULES = (builtins, json, logging, math, operator, statistics, time)
_KINDS = (list, dict, set, frozenset, tuple, str, bytes, int, float, bool, collections.deque)
_OTHER_METHODS = frozenset(
    {
        *("debug", "info", "warning", "error", "exception", "critical", "isEnabledFor"),
        *("item", "tolist", "move_to_end", "most_common", "_asdict", "_replace"),
    }
)
_METHODS = _OTHER_METHODS.union(*(vars(kind) for kind in _KINDS))
_REFUSED = frozenset(
    {eval, exec, compile, __import__, globals, locals, vars, input, breakpoint, super, map, filter}
)
_CALLS = {"PRECALL" if "PRECALL" in dis.opmap else "CALL": 2, "CALL_KW": 3}
"""How many values a call takes besides what it passes."""
_OTHER_CALLS = frozenset({"CALL_FUNCTION_EX", "BEFORE_WITH", "IMPORT_NAME", "CALL_INTRINSIC_2"})
_OPERATORS = ("BINARY", "COMPARE", "CONTAINS", "UNARY", "FOR_ITER")
_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
# A parameter of code that Dynamo resumes: what goes on in functions that it has called.
_RESUMED = "__nested_resume_fns"
# Code that is called by code that is called by code.
_DEEPEST = 3


def is_plain_python(function: types.FunctionType, args: Sequence[Any], *, operators: bool) -> bool:
    """Tell whether a function calls nothing that may compute with tensors, whatever way it goes.

    Args:
        function: it.
        args: what its first parameters may be.
        operators: it may have Python's. Where it was seen that those of one way through it are of
            numbers, few of the others will be of tensors.
    """
    code = function.__code__
    if code.co_flags & inspect.CO_GENERATOR or not (operators or _has_no_operators(code)):
        return False
    return _is_plain(code, function.__globals__, dict(zip(code.co_varnames, args, strict=False)))


def _has_no_operators(code: types.CodeType) -> bool:
    return not any(found.opname.startswith(_OPERATORS) for found in dis.get_instructions(code))


def _is_plain(
    code: types.CodeType, namespace: Mapping[str, Any], given: Mapping[str, Any], depth: int = 0
) -> bool:
    if code.co_flags & _COROUTINE or depth > _DEEPEST:
        return False
    inside = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    if not all(_is_plain(each, namespace, {}, depth + 1) for each in inside):
        return False
    instructions = cleaned_instructions(code)
    flow = CodeFlow(instructions, code)
    resumed = given.get(_RESUMED)
    for index in sorted(flow.depths):
        name = instructions[index].opname
        if name == "CALL_FUNCTION_EX" and resumed:
            # The code begins with what Dynamo resumes in a function that it has called.
            if not all(_is_known(function, depth) for function in resumed):
                return False
            resumed = None
        elif name in _OTHER_CALLS:
            return False
        if name in _CALLS and not _calls_python(instructions, flow, index, namespace, given, depth):
            return False
    return True


def _calls_python(
    instructions: Sequence[Instruction],
    flow: CodeFlow,
    index: int,
    namespace: Mapping[str, Any],
    given: Mapping[str, Any],
    depth: int,
) -> bool:
    call = instructions[index]
    base = flow.depths[index] - (call.arg or 0) - _CALLS[call.opname]
    if _begins_comprehension(instructions, index):
        return True  # its code is looked at besides
    place = index - 1
    while flow.depths.get(place, base + 2) > base + 1 or instructions[place].opname == "PUSH_NULL":
        place -= 1
    while instructions[place + 1].opname == "LOAD_ATTR" and flow.depths[place + 1] == base + 2:
        place += 1  # of what was loaded with the null of a function
    found = instructions[place]
    if found.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
        return _is_known(_named(found.argval, namespace), depth)
    if found.opname.startswith("LOAD_FAST"):
        return _is_known(given.get(found.argval), depth)
    if found.opname not in ("LOAD_METHOD", "LOAD_ATTR"):
        return False
    owner = instructions[place - 1]
    if owner.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
        holder = _named(owner.argval, namespace)
        if isinstance(holder, (types.ModuleType, type)):
            return _is_known(inspect.getattr_static(holder, str(found.argval), None), depth)
    if owner.opname.startswith("LOAD_FAST") and owner.argval in given:
        method = inspect.getattr_static(type(given[owner.argval]), str(found.argval), None)
        if isinstance(method, types.FunctionType):
            return _is_known(types.MethodType(method, given[owner.argval]), depth)
    return found.argval in _METHODS


def _begins_comprehension(instructions: Sequence[Instruction], index: int) -> bool:
    return not instructions[index].arg and instructions[index - 1].opname == "GET_ITER"


def _named(name: str, namespace: Mapping[str, Any]) -> Any:
    return namespace.get(name, vars(builtins).get(name))


def _is_known(called: Any, depth: int) -> bool:
    """Tell whether something that code calls by its name is no more than Python, or compiled."""
    if isinstance(called, _C.CompiledFunction):
        return True
    if isinstance(called, types.MethodType) and isinstance(called.__func__, types.FunctionType):
        function = called.__func__
        given = dict(zip(function.__code__.co_varnames, (called.__self__,), strict=False))
        return _is_plain(function.__code__, function.__globals__, given, depth + 1)
    if isinstance(called, types.BuiltinMethodType) and type(called.__self__) in _KINDS:
        return called.__name__ in _METHODS
    if isinstance(called, types.FunctionType):
        known = called.__module__ in {module.__name__ for module in _MODULES}
        return known or _is_plain(called.__code__, called.__globals__, {}, depth + 1)
    if isinstance(called, types.BuiltinFunctionType):
        modules = {module.__name__ for module in _MODULES}
        return called not in _REFUSED and str(called.__module__).lstrip("_") in modules
    if not isinstance(called, type):
        return False
    if issubclass(called, BaseException) or called.__module__ in ("builtins", "collections"):
        return called not in _REFUSED
    if dataclasses.is_dataclass(called):
        return not hasattr(called, "__post_init__")
    return issubclass(called, tuple) and hasattr(called, "_fields")
