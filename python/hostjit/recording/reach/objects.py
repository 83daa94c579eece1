# SPDX-License-Identifier: Apache-2.0
"""Which objects have state that a walk looks into, and which are taken to stay as they are."""

from __future__ import annotations

import collections
import collections.abc
import enum
import functools
import gc
import struct
import sys
import types
import typing
from collections.abc import Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.arguments import EQUALITY_TYPES
from hostjit.capturing.constants import IMMUTABLE_TYPES
from hostjit.capturing.instances import METHODS, instance_dict, is_a, is_one_of
from hostjit.recording import numpy_types
from hostjit.recording.code.libraries import is_library

__all__ = [
    "ITERATORS",
    "SKIPPED",
    "TRUSTED",
    "has_attributes",
    "has_hidden_state",
    "hidden_base",
    "is_data",
    "is_library_module",
    "is_users_alone",
    "parts_of",
]

_ORDERED: collections.OrderedDict[Any, Any] = collections.OrderedDict()
SKIPPED: tuple[type, ...] = (
    *IMMUTABLE_TYPES,
    *EQUALITY_TYPES,
    *(types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.CodeType),
    type(vars(collections.namedtuple("_", "field"))["field"]),
    # Of C code from Python 3.12 on, of which nobody sees the attributes.
    *(typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple),
    *(torch.Generator, torch._ops.OpOverload, torch._ops.OpOverloadPacket),
    *numpy_types.CONSTANTS,
)
# Of these packages, objects that Python code cannot look into are taken to stay as they are.
TRUSTED = frozenset(
    {
        *("builtins", "torch", "hostjit", "re", "functools", "operator", "weakref", "_weakref"),
        *("abc", "_abc", "enum", "types", "typing", "typing_extensions", "contextlib"),
        *(
            "_thread",
            "threading",
            "logging",
            "warnings",
            "inspect",
            "dataclasses",
            "_contextvars",
            "numpy",
        ),
    }
)
_PACKAGES = sys.stdlib_module_names | {"torch", "hostjit", "numpy", "triton", "typing_extensions"}
# Of dicts, which others may change.
_VIEWS: tuple[type, ...] = (
    *(types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items())),
    *map(type, (_ORDERED.keys(), _ORDERED.values(), _ORDERED.items())),
)
# Such as `dict[str, int | None]` and `Callable[..., int]`.
_ANNOTATIONS = (types.GenericAlias, types.UnionType, type(collections.abc.Callable[[], None]))
_WORD = struct.calcsize("P")
ITERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def is_users_alone(kind: type) -> bool:
    """Tell whether no library's code knows attributes of a class."""
    modules = [sys.modules.get(str(base.__module__)) for base in kind.__mro__[:-1]]
    return all(module is not None and not is_library_module(module) for module in modules)


def is_library_module(module: types.ModuleType) -> bool:
    """Tell whether a module is of a library, see `is_library`, or of its C code."""
    file = vars(module).get("__file__")
    if isinstance(file, str):
        return is_library(file)
    name = vars(module).get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in _PACKAGES


def is_data(value: Any) -> bool:
    """Tell whether code that finds this in a module of a library may find something else later."""
    if is_a(value, types.ModuleType):
        return is_library_module(value)
    return is_a(value, (list, dict, set, collections.abc.MutableMapping))


def parts_of(value: Any) -> Sequence[Any] | None:
    """Return what an object without state of its own is made of; None for other objects."""
    if is_a(value, METHODS):
        return (value.__self__, value.__func__)
    if is_a(value, functools.partial):
        return (value.func, value.args, value.keywords)
    if is_a(value, (staticmethod, classmethod)):
        return (value.__func__,)
    if is_a(value, property):
        return (value.fget, value.fset)
    if is_a(value, functools.cached_property):
        return (value.func,)
    if is_a(value, _C.CompiledFunction):
        return (value.__wrapped__,)
    if is_one_of(type(value), _ANNOTATIONS):
        return (getattr(value, "__origin__", None), value.__args__)
    if is_a(value, _VIEWS):
        return gc.get_referents(value)
    return None


def has_attributes(value: Any) -> bool:
    """Tell whether an immutable value has attributes all the same: of an enum or a subclass."""
    kinds = (int, float, complex, str, bytes, enum.Enum)
    return is_a(value, kinds) and instance_dict(value) is not None


def hidden_base(kind: type) -> type | None:
    """Return the base of a class of whose objects C code alone knows some fields; None if none."""
    for base in reversed(kind.__mro__[:-1]):
        members = [member for parent in base.__mro__ for member in vars(parent).values()]
        words = sum(isinstance(member, types.MemberDescriptorType) for member in members)
        words += (base.__dictoffset__ > 0) + (base.__weakrefoffset__ > 0)
        if base.__basicsize__ > object.__basicsize__ + words * _WORD or base.__itemsize__:
            return base
    return None


def has_hidden_state(kind: type) -> bool:
    """Tell whether objects have fields that C code alone knows, of a class that is not trusted."""
    base = hidden_base(kind)
    return base is not None and base.__module__.partition(".")[0] not in TRUSTED
