# SPDX-License-Identifier: Apache-2.0
"""What Dynamo's guards trust to stay, but users do change: methods of classes, and hooks.

Dynamo guards the class of a module, not what the class contains, so that a replaced `forward`
would go unnoticed. A `Behaviour` remembers it at capture and compares it in the full check.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from hostjit.capturing.guards.watch_list import WatchList
from hostjit.capturing.instances import is_namedtuple_type
from hostjit.capturing.module_fields import MODULE_HOOKS

__all__ = ["GLOBAL_HOOKS", "Behaviour", "names_in", "watch_behaviour"]

GLOBAL_HOOKS = tuple(f"_global{name}" for name in MODULE_HOOKS)

_HOOKS = frozenset({*MODULE_HOOKS, *GLOBAL_HOOKS})


def names_in(codes: Iterable[types.CodeType]) -> frozenset[str]:
    """Return the names of attributes that code may look up.

    Constants too: `getattr(x, "gain")` finds what a class gains before what it inherits.
    """
    names = (name for code in codes for name in (*code.co_names, *code.co_consts))
    return frozenset(name for name in names if isinstance(name, str))


def watch_behaviour(
    watches: WatchList,
    classes: Iterable[type],
    traced_code: Sequence[types.CodeType],
    members: Iterable[enum.Enum],
) -> None:
    """Watch the functions of classes that were inlined, and what members of enumerations have."""
    codes = set(map(id, traced_code))
    for kind in classes:
        for base in kind.__mro__:
            for name, value in vars(base).items():
                function = getattr(value, "__func__", getattr(value, "fget", value))
                if not isinstance(function, types.FunctionType):
                    continue
                if id(function.__code__) in codes or _makes_namedtuple(kind, name):
                    path = f"{base.__qualname__}.{name}"
                    watches.function(function, path)
                    if function.__kwdefaults__:
                        watches.dict_version(function.__kwdefaults__, path)
    for member in members:
        for name in vars(member):
            watches.dict_item(vars(member), name, type(member).__name__, owner=member)


def _makes_namedtuple(kind: type, name: str) -> bool:
    """Tell whether it is a method that Dynamo calls without a look inside, up to torch 2.12."""
    return name == "__new__" and is_namedtuple_type(kind)


class Behaviour:
    """A snapshot of classes and hooks; `unchanged` compares it with the present."""

    def __init__(
        self,
        classes: Iterable[type],
        made: Iterable[type],
        modules: Iterable[torch.nn.Module],
        traced_code: Sequence[types.CodeType],
        members: Iterable[enum.Enum],
        open_attributes: Mapping[type, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """Take one.

        `made`: classes of which the functions alone are compared. `members`: of enumerations; what
        they have now is compared. `open_attributes`: numbers of classes, which may be others.
        """
        self._open = open_attributes
        self._classes = tuple(classes)
        self._made = tuple(kind for kind in made if kind not in self._classes)
        self._inlined = frozenset(map(id, traced_code))
        self._modules = tuple(modules)
        self._members = [(member, tuple(vars(member))) for member in members]
        self._names = names_in(traced_code)
        self._facts = tuple(self._read())

    def unchanged(self) -> bool:
        """Tell whether every method and every hook is still the same object, with the same code."""
        found = tuple(self._read())
        if len(found) != len(self._facts):
            return False
        return all(a is b for a, b in zip(found, self._facts, strict=True))

    def _read(self) -> Iterator[Any]:
        for kind in self._classes:
            yield from self._functions_of(kind, self._names)
        for kind in self._made:
            yield from self._functions_of(kind, frozenset())
        for member, names in self._members:
            for name in names:
                yield vars(member).get(name)
        for module in self._modules:
            yield from _hooks(vars(module))
        yield from _hooks(vars(torch_module))

    def _functions_of(self, kind: type, names: Set[str]) -> Iterator[Any]:
        """Yield the functions of a class, and the attributes of these names."""
        for base in kind.__mro__:
            if base is object:
                continue
            yield base
            open_names = self._open.get(base, ())
            for name, value in vars(base).items():
                if name in open_names:
                    continue
                if name in names or hasattr(type(value), "__get__"):
                    yield value
                    function = getattr(value, "__func__", getattr(value, "fget", value))
                    code = getattr(function, "__code__", None)
                    yield code
                    is_called = id(code) in self._inlined or _makes_namedtuple(kind, name)
                    if is_called and isinstance(function, types.FunctionType):
                        yield from function.__defaults__ or ()
                        yield from (function.__kwdefaults__ or {}).values()


def _hooks(state: dict[str, Any]) -> Iterator[Any]:
    for name, hooks in state.items():
        if name in _HOOKS and isinstance(hooks, dict):
            yield hooks
            yield from hooks.values()
