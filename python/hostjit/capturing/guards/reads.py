# SPDX-License-Identifier: Apache-2.0
"""For each read of Python state, the watch that notices when its answer changes."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
from collections.abc import Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.arguments import EQUALITY_TYPES
from hostjit.capturing.by_fields import NONE_BY_FIELDS, ByFields
from hostjit.capturing.guards.watch_list import WatchList
from hostjit.capturing.guards.watches import MISSING
from hostjit.capturing.instances import HEAP_TYPE, METHODS, instance_dict
from hostjit.capturing.module_fields import MODULE_HOOKS, MODULE_STATE, UNREAD

__all__ = ["ReadWatcher", "class_attribute"]


class ReadWatcher:
    """Performs reads and adds what decides their answers to a list of watches.

    Attributes:
        watches: where they go.
        inlined: the code that Dynamo followed, so that what it reads is guarded by itself.
        by_fields: classes whose objects, where these are covered, are described with their fields.
        modules: every nn.Module met, by id.
        classes: every class whose instances were met, by id.
        made: every class that was met itself, of which code may make objects.
        gradients: what was found in `.grad` of tensors: (the gradient, the tensor, its path).
    """

    def __init__(
        self,
        watches: WatchList,
        inlined: Sequence[types.CodeType] = (),
        by_fields: ByFields = NONE_BY_FIELDS,
    ) -> None:
        self.watches = watches
        self.by_fields = by_fields
        self.inlined = frozenset(inlined)
        self.modules: dict[int, torch.nn.Module] = {}
        self.classes: dict[int, type] = {}
        self.made: dict[int, type] = {}
        self.gradients: dict[int, tuple[torch.Tensor | None, torch.Tensor, str]] = {}

    def note_container(self, value: dict[Any, Any] | tuple[Any, ...], path: str) -> None:
        """Watch the class of a dict or tuple that is no plain one."""
        if type(value) not in (dict, collections.OrderedDict, tuple):
            self.note_type(value, path, covered=False)

    def note_list(self, value: list[Any] | collections.deque[Any], path: str) -> None:
        """Watch the items of a list or deque."""
        if type(value) not in (list, collections.deque):
            self.note_type(value, path, covered=False)
        self.watches.list_items(value, path)

    def note_type(self, value: Any, path: str, covered: bool) -> None:
        """Watch that an object keeps its class and that the class keeps its behaviour."""
        kind = type(value)
        if isinstance(value, torch.Tensor) or kind.__module__ == "builtins":
            return
        self.classes[id(kind)] = kind
        if covered:
            self.watches.type_version(kind, path)
        else:
            self.watches.object_type(value, path)

    def note_module(self, module: torch.nn.Module, path: str) -> None:
        """Watch the class and the hooks of a module; what it reads has guards of its own."""
        self.note_type(module, path, covered=False)
        if id(module) in self.modules:
            return
        self.modules[id(module)] = module
        state = vars(module)
        for name in MODULE_HOOKS:
            self.watches.dict_item(state, name, path, owner=module)
            if isinstance(state.get(name), dict):
                self.watches.dict_version(state[name], f"{path}.{name}")

    def attribute(self, base: Any, member: str, path: str, covered: bool = False) -> Any:
        """Read an attribute as the interpreter would, watching what decides the answer.

        Args:
            base: the object.
            member: the name; MISSING is returned when there is none.
            path: where the object was found.
            covered: the object is part of the arguments, so that the spec describes it.
        """
        self.watches.read_attribute(member)
        if covered:
            # An attribute of a leaf: the spec says what the leaf is, not what hangs on it.
            if type(base) in self.by_fields:
                self._field(base, member, path)
            elif not isinstance(base, (tuple, *EQUALITY_TYPES)):
                self.watches.cannot_watch(f"{path}.{member} (attribute of an argument)")
        elif isinstance(base, types.ModuleType):
            is_property = hasattr(type(class_attribute(type(base), member)), "__set__")
            if is_property or (member not in vars(base) and "__getattr__" in vars(base)):
                self.watches.cannot_watch(f"{path}.{member} (computed)")  # as in torch.backends
            self.watches.dict_item(vars(base), member, base.__name__)
        elif isinstance(base, type):
            self.watches.type_version(base, path)
            self.classes[id(base)] = base
        elif isinstance(base, types.FunctionType):
            self._function_attribute(base, member, path)
        elif isinstance(base, types.MethodType) and member not in _OF_METHODS:
            return self.attribute(base.__func__, member, f"{path}.__func__")
        elif isinstance(base, functools.partial):
            self._partial_attribute(base, member, path)
        elif isinstance(base, types.CellType):
            self.watches.cell(base, path)
        elif not isinstance(base, _FIXED_TYPES) or self._has_own(base):
            self._object_attribute(base, member, path)
        if isinstance(base, types.CellType):
            try:
                return base.cell_contents
            except ValueError:
                return MISSING
        return getattr(base, member, MISSING)

    def _has_own(self, base: Any) -> bool:
        return isinstance(base, _VALUES) and instance_dict(base) is not None

    def _field(self, base: Any, member: str, path: str) -> None:
        self.note_type(base, path, covered=True)
        is_unread = isinstance(base, torch.nn.Module) and member in UNREAD
        if is_unread or self.by_fields.leaves_out(base, member):
            self.watches.cannot_watch(f"{path}.{member}")
        found = class_attribute(type(base), member)
        if hasattr(type(found), "__set__") and not isinstance(found, types.MemberDescriptorType):
            if not (isinstance(found, property) and self._is_inlined(found.fget)):
                self.watches.cannot_watch(f"{path}.{member} (a property)")

    def absent_attribute(self, base: Any, member: str, path: str, covered: bool = False) -> None:
        """Watch that the `__dict__` of an object does not hide what its class defines.

        Nothing is said of what the class answers: a property's getter has guards of its own.
        """
        state = None if covered or isinstance(base, _OTHER_DICTS) else instance_dict(base)
        if state is None or self._overrides_lookup(type(base)):
            self.attribute(base, member, path, covered)
            return
        self._note_object(base, path)
        self.watches.dict_item(state, member, path, owner=base)

    def _note_object(self, base: Any, path: str) -> None:
        if isinstance(base, torch.nn.Module):
            self.note_module(base, path)
        else:
            self.note_type(base, path, covered=False)

    def _function_attribute(self, base: types.FunctionType, member: str, path: str) -> None:
        self.watches.function(base, path)
        if member in _FIELDS_OF_FUNCTIONS:
            self.watches.function_field(base, member, path)
        elif member not in vars(types.FunctionType) or member == "__dict__":
            self.watches.dict_item(base.__dict__, member, path, owner=base)

    def _partial_attribute(self, base: Any, member: str, path: str) -> None:
        self.note_type(base, path, covered=False)
        found = class_attribute(type(base), member)
        if isinstance(found, types.MemberDescriptorType):
            self.watches.slot(base, found, path)
        elif found is MISSING or member == "__dict__":
            self.watches.dict_item(vars(base), member, path, owner=base)
        elif type(base) is not functools.partial:
            self._object_attribute(base, member, path)

    def _object_attribute(self, base: Any, member: str, path: str) -> None:
        kind = type(base)
        self._note_object(base, path)
        if member == "__class__":
            return
        if member == "__dict__":
            state = instance_dict(base)
            if state is not None:
                self.watches.dict_item(state, member, path, owner=base)
            return
        if self._overrides_lookup(kind):
            self.watches.cannot_watch(f"{path}.{member} (the class defines __getattribute__)")
            return
        if isinstance(base, torch.Tensor) and member == "grad":
            self.gradients[id(base)] = base.grad, base, path
            return
        found = class_attribute(kind, member)
        state = instance_dict(base)
        if isinstance(base, enum.Enum) and found is vars(enum.Enum).get(member):
            self.watches.dict_item(vars(base), f"_{member}_", path, owner=base)
            return
        if found is not MISSING and hasattr(type(found), "__set__"):
            if kind.__module__.startswith("torch.") and not isinstance(base, _OF_USERS):
                return  # such as the slots of a TreeSpec, which torch makes once
            if kind is dataclasses.Field:
                return  # made once, by the decorator
            if isinstance(found, property) and self._is_inlined(found.fget):
                return  # what its getter reads has guards of its own
            is_kept = kind.__flags__ & HEAP_TYPE or isinstance(base, collections.defaultdict)
            if isinstance(found, types.MemberDescriptorType) and is_kept:
                self.watches.slot(base, found, path)
                return
            self.watches.cannot_watch(f"{path}.{member} (a property or slot)")
            return
        if state is None:
            if found is MISSING:
                self.watches.cannot_watch(f"{path}.{member} (of a {kind.__qualname__})")
            return
        self.watches.dict_item(state, member, path, owner=base)
        if found is not MISSING or member in state or not hasattr(kind, "__getattr__"):
            return
        if class_attribute(kind, "__getattr__") is _MODULE_GETATTR:
            self.module_lookup(base, member, path)
        else:
            self.watches.cannot_watch(f"{path}.{member} (the class defines __getattr__)")

    def _overrides_lookup(self, kind: type) -> bool:
        """Tell whether attributes are found in a way that is unknown here.

        A `__getattribute__` that Dynamo inlined ends in reads of the usual kind, which are what
        the guards are about: its own conditions have guards too, and its code is watched.
        """
        lookup = class_attribute(kind, "__getattribute__")
        return lookup not in _USUAL_LOOKUPS and not self._is_inlined(lookup)

    def _is_inlined(self, function: Any) -> bool:
        return isinstance(function, types.FunctionType) and function.__code__ in self.inlined

    def module_lookup(self, module: torch.nn.Module, member: str, path: str) -> None:
        """Watch what `Module.__getattr__` would find, up to the dict that answers."""
        state = vars(module)
        self.watches.dict_item(state, member, path, owner=module)
        for name in MODULE_STATE:
            entries = state.get(name)
            self.watches.dict_item(state, name, path, owner=module)
            if isinstance(entries, dict):
                self.watches.dict_item(entries, member, f"{path}.{name}")
                if member in entries:
                    return


# Classes of torch whose slots and properties its users change: `.grad` of a parameter is replaced.
_OF_USERS = (torch.Tensor, torch.nn.Module)

_MODULE_GETATTR: Any = torch.nn.Module.__getattr__

# All of them are PyObject_GenericGetAttr.
_USUAL_LOOKUPS = frozenset(
    kind.__getattribute__
    for kind in (
        *(object, dict, list, tuple, set, frozenset, types.SimpleNamespace),
        *(collections.OrderedDict, collections.defaultdict),
    )
)

# Of functions: in no dict, and not compared with their code.
_FIELDS_OF_FUNCTIONS = ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__")
# Of methods: all other attributes are those of their functions.
_OF_METHODS = ("__self__", "__func__", "__class__")

# Their `__dict__` is not where a class looks for what its instances hide.
_OTHER_DICTS = (type, types.ModuleType, types.FunctionType)

# Objects of a subclass may have attributes of their own.
_VALUES = (int, float, complex, str, bytes, tuple, frozenset)

# Their attributes cannot change.
_FIXED_TYPES: tuple[Any, ...] = (
    *(*_VALUES, type(None), range, slice, collections.deque),
    *(*METHODS, types.CodeType, types.BuiltinFunctionType),
    *(
        collections.deque,
        property,
        staticmethod,
        classmethod,
        torch.dtype,
        torch.device,
        torch.layout,
    ),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType),
    *(torch._ops.OpOverload, torch._ops.OpOverloadPacket, _C.CompiledFunction),
)


def class_attribute(kind: type, name: str) -> Any:
    """Return what a class or the first base that has it holds by a name, or MISSING."""
    for base in kind.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return MISSING
