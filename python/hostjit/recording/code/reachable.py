# SPDX-License-Identifier: Apache-2.0
"""The code of users that a function may call, and whether some of it tells one tensor from another.

A tensor that is selected is a copy: code that asks which object it is, or changes what an object
is, must not meet one.
"""

from __future__ import annotations

import dis
import functools
import itertools
import types
from collections.abc import Iterator, Mapping
from typing import Any

from hostjit.capturing.instances import instance_dict, is_a, is_one_of
from hostjit.recording.code.libraries import is_library
from hostjit.recording.reach.attributes import as_defined

__all__ = ["may_tell_tensors_apart"]

# So much code is looked at.
_MOST = 256
_MOST_ITEMS = 64
_ASKING = frozenset(
    {
        *("id", "hash", "is_", "is_not", "weakref", "ref", "proxy", "finalize", "getrefcount"),
        *("WeakKeyDictionary", "WeakValueDictionary", "WeakSet", "WeakTensorKeyDictionary"),
        *("set", "frozenset"),
    }
)
"""Names of global variables."""
_ASKED = frozenset(
    {
        *("is_", "is_not", "data_ptr", "untyped_storage", "_base", "_is_view"),
        *("fromkeys", "index", "remove"),  # which ask for the very object first
    }
)
"""Names of attributes."""
_CHANGING = frozenset(
    {"requires_grad_", "resize_", "resize_as_", "set_", "share_memory_", "data", "requires_grad"}
)
"""Those that change what a tensor is: of one that is new, nobody has another."""
_NEW = frozenset(
    {
        *("detach", "clone", "cat", "stack", "zeros", "ones", "full", "empty", "rand", "randn"),
        *("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like"),
        *("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "tensor", "linspace"),
    }
)
_LOADED = frozenset({"LOAD_FAST", "LOAD_DEREF", "LOAD_ATTR"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def may_tell_tensors_apart(function: types.FunctionType, receiver: Any) -> bool:
    """Tell whether a function, or what it may call, asks which object a tensor is; errs to yes.

    `receiver`: the object of a method, None for a function.
    """
    codes = [*itertools.islice(_Reachable(receiver).of(function), _MOST)]
    return len(codes) == _MOST or any(map(_tells_apart, codes))


class _Reachable:
    """Code by the names that other code has: of functions, and of methods of classes it knows."""

    def __init__(self, receiver: Any) -> None:
        self._seen: set[tuple[types.CodeType, tuple[int, ...]]] = set()
        self._classes: dict[int, type] = {}  # by id: a class may have a hash of its own
        self._names: set[str] = {"forward", "__call__", "__init__"}
        self._pending: list[types.FunctionType] = []
        if receiver is not None:
            self._add_object(receiver, 0)

    def of(self, function: types.FunctionType) -> Iterator[types.CodeType]:
        """Yield the code of a function, and what it leads to."""
        self._add(function)
        while self._pending:
            found = self._pending.pop()
            key = found.__code__, tuple(map(id, found.__closure__ or ()))
            if key in self._seen:
                continue
            self._seen.add(key)
            for cell in found.__closure__ or ():  # where decorators of libraries have functions
                self._add(_content(cell))
            if is_library(found.__code__.co_filename):
                continue
            for code in _nested(found.__code__):
                yield code
                self._add_names(code, found.__globals__)

    def _add_names(self, code: types.CodeType, variables: Mapping[str, Any]) -> None:
        for name in code.co_names:
            value = variables.get(name)
            self._add(value)
            if type(value) is types.ModuleType:
                self._add_module(value, code.co_names, 0)
        new = {*code.co_names} - self._names
        self._names |= new
        for kind in [*self._classes.values()]:
            self._add_methods(kind, new)

    def _add_module(self, module: types.ModuleType, names: tuple[str, ...], depth: int) -> None:
        if is_library(str(vars(module).get("__file__", "<"))) or depth > 4:
            return
        for member in names:
            value = vars(module).get(member)
            if type(value) is types.ModuleType:
                self._add_module(value, names, depth + 1)
            else:
                self._add(value)

    def _add(self, value: Any) -> None:
        value = as_defined(value)
        if type(value) is types.MethodType:
            self._add_object(value.__self__, 0)
            value = value.__func__
        if type(value) is types.FunctionType:
            self._pending.append(value)
            for default in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
                self._add_held(default)
        elif is_a(value, type):
            self._add_class(value)
        elif type(value) is functools.partial:
            self._add_held(value.func)
            self._add_held(value.args)
        elif type(value) is property:
            self._add(value.fget)
            self._add(value.fset)
        elif is_one_of(type(value), (dict, list, tuple)):
            self._add_held(value)
        else:
            self._add_object(value, 0)

    def _add_held(self, value: Any) -> None:
        """Look at a function, or at those in a container."""
        items = value if is_one_of(type(value), (list, tuple)) else ()
        items = [*value.values()] if type(value) is dict else items
        for each in (value, *items[:_MOST_ITEMS]):
            if isinstance(each, (types.FunctionType, types.MethodType, functools.partial)):
                self._add(each)

    def _add_object(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind.__module__ == "builtins" or id(kind) in self._classes or depth > 4:
            return
        self._add_class(kind)
        for item in [*(instance_dict(value) or {}).values()]:
            for inner in [*dict.values(item)] if is_a(item, dict) else (item,):
                self._add_object(inner, depth + 1)

    def _add_class(self, kind: type) -> None:
        for base in kind.__mro__:
            if id(base) not in self._classes and base.__module__ != "builtins":
                self._classes[id(base)] = base
                self._add_methods(base, self._names)

    def _add_methods(self, kind: type, names: set[str]) -> None:
        for name in names & vars(kind).keys():
            self._add(vars(kind)[name])


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


@functools.lru_cache(maxsize=4096)
def _tells_apart(code: types.CodeType) -> bool:
    """Whether code may ask which object a tensor is, or changes more of one than what is in it."""
    instructions = [*dis.get_instructions(code)]
    if {"getattr", "attrgetter"} & {*code.co_names}:  # it may ask by a text
        texts = {each for each in code.co_consts if isinstance(each, str)}
        if not texts.isdisjoint(_ASKING | _ASKED | _CHANGING):
            return True
    new = _new_variables(instructions, code)
    for index, each in enumerate(instructions):
        before = instructions[:index]
        match each.opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                found = each.argval in _ASKING
            case "LOAD_ATTR" | "LOAD_METHOD":
                is_changed = each.argval in _CHANGING - {"data", "requires_grad"}
                found = each.argval in _ASKED or (is_changed and not _is_new(before, new))
            case "STORE_ATTR":
                found = each.argval in _CHANGING and not _is_new(before, new)
            case "IS_OP":
                found = before[-1].opname != "LOAD_CONST"
            case "CONTAINS_OP":
                found = not _is_of_constants(before)
            case "BUILD_MAP":
                found = any(x.opname in _LOADED for x in before[-2 * (each.arg or 0) :: 2])
            case name:
                found = name in ("BUILD_SET", "SET_ADD")
        if found:
            return True
    return False


def _new_variables(instructions: list[dis.Instruction], code: types.CodeType) -> set[str]:
    """Variables that have nothing but new tensors, which no other variable has."""
    found = {*code.co_varnames[code.co_argcount :]}
    for index, each in enumerate(instructions):
        if each.opname.startswith("STORE_FAST") and not _is_made(instructions[:index]):
            for other in (each, *instructions[max(index - 1, 0) : index]):
                if "FAST" in other.opname:
                    found -= {*other.argval} if isinstance(other.argval, tuple) else {other.argval}
    return found


def _is_new(before: list[dis.Instruction], variables: set[str]) -> bool:
    """Whether what is on top of the stack is a tensor that nobody else has."""
    if before[-1].opname.startswith("LOAD_FAST"):
        return before[-1].argval in variables
    return _is_made(before)


def _is_made(before: list[dis.Instruction]) -> bool:
    """Whether a call has just made a new tensor."""
    if not before or before[-1].opname not in ("CALL", "CALL_KW"):
        return False
    names = (each.argval for each in reversed(before) if each.opname in _ATTRIBUTES)
    made = next(names, None)
    return made in _NEW or (made == "requires_grad_" and next(names, None) in _NEW)


def _is_of_constants(before: list[dis.Instruction]) -> bool:
    """Whether what is looked for is text, or looked for in a constant: `"key" in self.table`."""
    if before[-1].opname == "LOAD_CONST":
        return True
    place = len(before) - 1
    while place > 0 and before[place].opname in ("LOAD_ATTR", "LOAD_METHOD", "CACHE"):
        place -= 1
    return place > 0 and before[place - 1].opname == "LOAD_CONST"
