# SPDX-License-Identifier: Apache-2.0
"""Follow Dynamo's sources from their roots, watching every step that somebody could change.

A source is a path such as `L['args'][0]`, `L['hostjit_target']._modules['a']` or `G['K']`. A path
that stays inside the arguments is covered by the argument spec. Any other path is a chain of reads
(attribute, item, cell, class); for each read the walker adds the watch that notices a change of
its answer, or says that none can.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hostjit.capture.dynamo import TARGET_NAME, DynamoCapture
from hostjit.capture.watches import MISSING, WatchList

__all__ = ["SourceWalker", "instance_dict"]

# The hooks that a module's call runs when nothing needs a gradient. The other hook dicts only say
# how these are called, or matter to backward.
FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# Where `Module.__getattr__` looks, in its order.
_MODULE_STATE = ("_parameters", "_buffers", "_modules")

_TRANSPARENT = frozenset(
    {
        "SkipGuardSource",
        "OptimizerSource",
        "NNModuleSource",
        "UnspecializedNNModuleSource",
        "UnspecializedBuiltinNNModuleSource",
        "FSDPNNModuleSource",
        "NumpyTensorSource",
    }
)
_ITEM = frozenset(
    {
        "GetItemSource",
        "ListGetItemSource",
        "DictGetItemSource",
        "DictSubclassGetItemSource",
        "ConstDictKeySource",
    }
)
_ATTRIBUTE = frozenset(
    {
        "AttrSource",
        "GenericAttrSource",
        "ParamBufferSource",
        "UnspecializedParamBufferSource",
        "CellContentsSource",
        "ClosureSource",
        "CodeSource",
    }
)
_CLASS_FACT = frozenset(
    {"TypeDictSource", "TypeMROSource", "NamedTupleFieldsSource", "DataclassFieldsSource"}
)


class UnresolvedError(Exception):
    """A source has no value that can be read from outside of Dynamo."""


def instance_dict(value: object) -> dict[Any, Any] | None:
    """Return the `__dict__` of an object, or None."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


class SourceWalker:
    """Resolves sources for one call, adding watches to a list.

    Attributes:
        modules: every nn.Module met, by id.
        classes: every class whose instances were met, by id.
    """

    def __init__(
        self,
        traced: DynamoCapture,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        argument_objects: set[int],
        watches: WatchList,
    ) -> None:
        self._scope = traced.scope(args, kwargs)
        self._globals = traced.entry.__globals__
        self._installed = traced.installed_globals
        self.argument_objects = argument_objects
        self._watches = watches
        self._cache: dict[Any, tuple[Any, bool]] = {}
        self.modules: dict[int, torch.nn.Module] = {}
        self.classes: dict[int, type] = {}

    def resolve(self, source: Any) -> tuple[Any, bool]:
        """Return the value of a source, and whether the argument spec alone covers it."""
        if source not in self._cache:
            self._cache[source] = self._resolve(source)
        return self._cache[source]

    def _resolve(self, source: Any) -> tuple[Any, bool]:
        kind = type(source).__name__
        if kind == "LocalSource":
            name = source.local_name
            return self._scope[name], name != TARGET_NAME
        if kind == "GlobalSource":
            return self._global(source.global_name), False
        if kind == "GlobalWeakRefSource":
            return self._globals[source.global_name](), False
        if not hasattr(source, "base"):
            raise UnresolvedError(f"{kind} {source.name}")
        base, in_arguments = self.resolve(source.base)
        if in_arguments:
            in_arguments = self._stays_in_arguments(base)
        value = self._step(kind, source, base, in_arguments)
        return value, in_arguments

    def _global(self, name: str) -> Any:
        if name not in self._installed:
            self._watches.dict_item(self._globals, name, "globals")
        if name not in self._globals:
            raise UnresolvedError(f"global {name}")
        return self._globals[name]

    def _stays_in_arguments(self, base: Any) -> bool:
        return id(base) not in self.argument_objects

    def _step(self, kind: str, source: Any, base: Any, covered: bool) -> Any:
        if kind in _TRANSPARENT:
            return base
        if kind == "TypeSource":
            self.note_type(base, source.name, covered)
            return type(base)
        if kind in _CLASS_FACT:
            self._watches.type_version(base if isinstance(base, type) else type(base), source.name)
            return self._evaluate(source, base)
        if kind == "DefaultsSource":
            self._watches.function(base, source.base.name)
            defaults = getattr(base, source.field)
            if isinstance(defaults, dict):
                self._watches.dict_item(defaults, source.idx_key, source.name)
            return defaults[source.idx_key]
        if kind in _ITEM:
            return self._item(source, base, covered)
        if kind in _ATTRIBUTE:
            member = {"ClosureSource": "__closure__", "CodeSource": "__code__"}.get(kind)
            return self.attribute(base, member or source.member, source, covered)
        if not (covered and kind == "TensorPropertySource"):
            self._watches.cannot_watch(f"{source.name} ({kind})")
        return self._evaluate(source, base)

    def _evaluate(self, source: Any, base: Any) -> Any:
        from torch._dynamo import guards

        names = dict(guards._get_closure_vars())
        names["___base"] = base
        try:
            return eval(source._name_template.format("___base"), names)
        except Exception as error:
            raise UnresolvedError(source.name) from error

    def _item(self, source: Any, base: Any, covered: bool) -> Any:
        index = source.index
        if type(source).__name__ == "ConstDictKeySource":
            if not covered:
                self._watches.dict_version(base, source.base.name)
            return list(dict.keys(base))[index]
        if hasattr(index, "_name_template"):
            index, _ = self.resolve(index)
        if getattr(source, "index_is_slice", False):
            index = source.unpack_slice()
        if isinstance(base, (dict, types.MappingProxyType)):
            if isinstance(base, dict):
                if not covered:
                    self._note_state_dict(source.base, index)
                    self._note_dict_class(base, source.base.name)
                    self._watches.dict_item(base, index, source.base.name)
                return dict.__getitem__(base, index)
            return base[index]
        if isinstance(base, list):
            if not covered:
                self.note_list(base, source.base.name)
            return list.__getitem__(base, index)
        if not isinstance(base, tuple) and not covered:
            self._watches.cannot_watch(f"{source.name} (item of a {type(base).__qualname__})")
        return base[index]

    def _note_state_dict(self, source: Any, member: Any) -> None:
        """An item of `module._modules` is an attribute that nothing must hide."""
        if getattr(source, "member", None) in _MODULE_STATE and isinstance(member, str):
            module, _ = self.resolve(source.base)
            if isinstance(module, torch.nn.Module):
                self._module_lookup(module, member, source.base.name)

    def _note_dict_class(self, value: dict[Any, Any], path: str) -> None:
        if type(value) not in (dict, collections.OrderedDict):
            self.note_type(value, path, covered=False)

    def note_list(self, value: list[Any], path: str) -> None:
        """Watch the items of a list."""
        if type(value) is not list:
            self.note_type(value, path, covered=False)
        self._watches.list_items(value, path)

    def note_type(self, value: Any, path: str, covered: bool) -> None:
        """Watch that an object keeps its class and that the class keeps its behaviour."""
        kind = type(value)
        if isinstance(value, torch.Tensor) or kind.__module__ == "builtins":
            return
        self.classes[id(kind)] = kind
        if covered:
            self._watches.type_version(kind, path)
        else:
            self._watches.object_type(value, path)

    def note_module(self, module: torch.nn.Module, path: str) -> None:
        """Watch the class and the hooks of a module; what it reads has guards of its own."""
        self.note_type(module, path, covered=False)
        if id(module) in self.modules:
            return
        self.modules[id(module)] = module
        state = vars(module)
        for name in FORWARD_HOOKS:
            self._watches.dict_item(state, name, path, owner=module)
            if isinstance(state.get(name), dict):
                self._watches.dict_version(state[name], f"{path}.{name}")

    def attribute(self, base: Any, member: str, source: Any, covered: bool = False) -> Any:
        """Read an attribute as the interpreter would, watching what decides the answer."""
        path = source.base.name if hasattr(source, "base") else source.name
        if covered:
            # An attribute of a leaf: the spec says what the leaf is, not what hangs on it.
            if not isinstance(base, tuple):
                self._watches.cannot_watch(f"{path}.{member} (attribute of an argument)")
        elif isinstance(base, types.ModuleType):
            self._watches.dict_item(vars(base), member, base.__name__)
        elif isinstance(base, type):
            self._watches.type_version(base, path)
            self.classes[id(base)] = base
        elif isinstance(base, types.FunctionType):
            self._function_attribute(base, member, path)
        elif isinstance(base, types.CellType):
            self._watches.cell(base, path)
        elif not isinstance(base, _FIXED_TYPES):
            self._object_attribute(base, member, path)
        if isinstance(base, types.CellType):
            try:
                return base.cell_contents
            except ValueError:
                return MISSING
        return getattr(base, member, MISSING)

    def _function_attribute(self, base: types.FunctionType, member: str, path: str) -> None:
        self._watches.function(base, path)
        if not member.startswith("__"):
            self._watches.dict_item(base.__dict__, member, path, owner=base)

    def _object_attribute(self, base: Any, member: str, path: str) -> None:
        kind = type(base)
        if isinstance(base, torch.nn.Module):
            self.note_module(base, path)
        else:
            self.note_type(base, path, covered=False)
        if member in ("__dict__", "__class__"):
            return
        if kind.__getattribute__ is not object.__getattribute__:
            self._watches.cannot_watch(f"{path}.{member} (the class defines __getattribute__)")
            return
        found = _class_attribute(kind, member)
        state = instance_dict(base)
        if found is not MISSING and hasattr(type(found), "__set__"):
            self._watches.cannot_watch(f"{path}.{member} (a property or slot)")
            return
        if state is None:
            if found is MISSING:
                self._watches.cannot_watch(f"{path}.{member} (of a {kind.__qualname__})")
            return
        self._watches.dict_item(state, member, path, owner=base)
        if found is not MISSING or member in state or not hasattr(kind, "__getattr__"):
            return
        if _class_attribute(kind, "__getattr__") is torch.nn.Module.__getattr__:
            self._module_lookup(base, member, path)
        else:
            self._watches.cannot_watch(f"{path}.{member} (the class defines __getattr__)")

    def _module_lookup(self, module: torch.nn.Module, member: str, path: str) -> None:
        """Watch what `Module.__getattr__` would find, up to the dict that answers."""
        state = vars(module)
        self._watches.dict_item(state, member, path, owner=module)
        for name in _MODULE_STATE:
            entries = state.get(name)
            self._watches.dict_item(state, name, path, owner=module)
            if isinstance(entries, dict):
                self._watches.dict_item(entries, member, f"{path}.{name}")
                if member in entries:
                    return


_FIXED_TYPES: tuple[Any, ...] = (
    *(bool, int, float, complex, str, bytes, type(None), tuple, frozenset, range, slice),
    *(types.MethodType, types.CodeType, types.BuiltinFunctionType, functools.partial),
    *(property, staticmethod, classmethod, torch.dtype, torch.device, torch.layout),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType),
    *(torch._ops.OpOverload, torch._ops.OpOverloadPacket),
)


def _class_attribute(kind: type, name: str) -> Any:
    for base in kind.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return MISSING

