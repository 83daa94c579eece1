# SPDX-License-Identifier: Apache-2.0
"""Follow Dynamo's sources from their roots, watching every step that somebody could change.

A source is a path such as `L['args'][0]`, `L['hostjit_target']._modules['a']` or `G['K']`. A path
that stays inside the arguments is covered by the argument spec. Any other path is a chain of reads
(attribute, item, cell, class); for each read the walker adds the watch that notices a change of
its answer, or says that none can.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from hostjit.capturing.by_fields import NONE_BY_FIELDS, ByFields
from hostjit.capturing.dynamo.call import DynamoCapture
from hostjit.capturing.dynamo.entry import TARGET_NAME
from hostjit.capturing.guards.reads import ReadWatcher, class_attribute
from hostjit.capturing.guards.structures import structure_items
from hostjit.capturing.guards.watch_list import WatchList
from hostjit.capturing.instances import HEAP_TYPE, instance_dict, is_namedtuple_type
from hostjit.capturing.module_fields import MODULE_STATE
from hostjit.capturing.numbers.open_numbers import NumberPlace
from hostjit.capturing.signal_errors import raise_of_handler

__all__ = ["SourceWalker", "UnresolvedError"]

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
# Those whose items are set as those of a dict.
_DICTS = (dict, collections.Counter, collections.defaultdict)
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


_OWN = ("hostjit.launching", "hostjit.capturing.numbers.parameters")


def is_own(value: Any) -> bool:
    """Tell whether a value is of hostjit's own code that Dynamo follows, which does not change.

    That of `hostjit.launch`, and kernels, for one.
    """
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith(_OWN)
    if isinstance(value, types.FunctionType):
        return str(value.__module__).startswith(_OWN) and value.__globals__["__name__"] == (
            value.__module__
        )
    return type(value).__module__.startswith(_OWN)


class UnresolvedError(Exception):
    """A source has no value that can be read from outside of Dynamo."""


class SourceWalker(ReadWatcher):
    """Resolves sources for one call, watching the reads on the way.

    Attributes:
        argument_objects: ids of the arguments that are compared by identity only; what hangs on
            them is not described by the argument spec.
        structures: places (holder, key), by ids, of what is described as arguments are.
    """

    def __init__(
        self,
        traced: DynamoCapture,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        argument_objects: set[int],
        watches: WatchList,
        by_fields: ByFields = NONE_BY_FIELDS,
    ) -> None:
        super().__init__(watches, traced.traced_code, by_fields)
        self._scope = traced.scope(args, kwargs)
        self._globals = traced.entry.__globals__
        self._installed = traced.installed_globals
        self.argument_objects = argument_objects
        self.structures: set[tuple[int, Any]] = set()
        self._cache: dict[Any, tuple[Any, bool]] = {}
        self._of_own: set[Any] = set()  # sources that go through what `is_own`

    def resolve(self, source: Any) -> tuple[Any, bool]:
        """Return the value of a source, and whether it is described, as the arguments are."""
        if source not in self._cache:
            value, covered = self._resolve(source)
            self._cache[source] = value, covered or self._is_structure(source)
        return self._cache[source]

    def _is_structure(self, source: Any) -> bool:
        place = self.number_place(source) if self.structures else None
        return place is not None and (id(place.holder), place.key) in self.structures

    def structure_places(self, source: Any) -> Iterator[tuple[NumberPlace, Any]]:
        """Yield the places by which a number may be found in a structure, the nearest first.

        And the structures. Nothing that is no structure is between the number and them.
        """
        base = source
        while hasattr(base, "base"):
            base = base.base
            value, _ = self.resolve(base)
            is_structure = structure_items(value) is not None
            if type(base).__name__ not in _TRANSPARENT and not is_structure:
                return
            place = self.number_place(base)
            is_there = place is not None and place.read_holder() is value
            if place is not None and is_there and source.name.startswith(base.name):
                path = source.name.removeprefix(base.name)
                yield dataclasses.replace(place, structure=base.name, path=path), value

    def _resolve(self, source: Any) -> tuple[Any, bool]:
        kind = type(source).__name__
        if kind == "LocalSource":
            name = source.local_name
            return self._scope[name], name != TARGET_NAME
        if kind == "GlobalSource":
            return self._global(source.global_name), False
        if kind == "GlobalWeakRefSource":
            return self._globals[source.global_name](), False
        if kind == "ImportSource":
            return sys.modules[source.module_name], False
        if not hasattr(source, "base"):
            raise UnresolvedError(f"{kind} {source.name}")
        base, in_arguments = self.resolve(source.base)
        if in_arguments:
            in_arguments = self._stays_in_arguments(base)
        if is_own(base) or source.base in self._of_own:
            self._of_own.add(source)
            with self._unwatched():
                return self._step(kind, source, base, in_arguments), in_arguments
        return self._step(kind, source, base, in_arguments), in_arguments

    def stays(self, source: Any) -> bool:
        """Tell whether what is at a resolved source is hostjit's own, which nobody changes."""
        return source in self._of_own or is_own(self.resolve(source)[0])

    @contextlib.contextmanager
    def _unwatched(self) -> Iterator[None]:
        kept = self.watches, self.classes, self.modules
        self.watches, self.classes, self.modules = WatchList(), {}, {}
        try:
            yield
        finally:
            self.watches, self.classes, self.modules = kept

    def number_place(self, source: Any) -> NumberPlace | None:
        """Return where a call can read the number at a resolved source; None for no such place."""
        kind = type(source).__name__
        if kind == "GlobalSource":
            return NumberPlace(self._globals, source.global_name)
        if not hasattr(source, "base"):
            return None
        if kind in _TRANSPARENT:
            return self.number_place(source.base)
        base, _ = self.resolve(source.base)
        if type(source.base).__name__ == "TypeDictSource":
            owner, _ = self.resolve(source.base.base)
            return _class_place(owner if isinstance(owner, type) else type(owner), source.index)
        if isinstance(base, types.CellType):
            return NumberPlace(base)
        if kind in _ITEM and type(base) in _DICTS:
            key = source.index
            if hasattr(key, "_name_template"):
                key, _ = self.resolve(key)
            return NumberPlace(base, key) if isinstance(key, str | int) else None
        if kind in _ITEM and type(base) is list and isinstance(source.index, int):
            return NumberPlace(base, source.index) if source.index >= 0 else None
        if kind in _ATTRIBUTE and isinstance(base, type):
            return _class_place(base, source.member)
        if kind in _ATTRIBUTE and not isinstance(base, types.FunctionType):
            state = instance_dict(base)
            return None if state is None else NumberPlace(state, source.member)
        return None

    def inner_place(self, source: Any) -> NumberPlace | None:
        """Return the tuple or the slot that has the number at a resolved source; None for none."""
        if not hasattr(source, "base"):
            return None
        kind = type(source).__name__
        if kind in _TRANSPARENT:
            return self.inner_place(source.base)
        base, _ = self.resolve(source.base)
        slot = class_attribute(type(base), source.member) if kind in _ATTRIBUTE else None
        if isinstance(slot, types.MemberDescriptorType) and type(base).__flags__ & HEAP_TYPE:
            return NumberPlace(base, slot)
        if is_namedtuple_type(type(base)) and kind in _ATTRIBUTE and source.member in base._fields:
            return NumberPlace(base, base._fields.index(source.member))
        if type(base) is not tuple and not is_namedtuple_type(type(base)):
            return None
        is_item = kind in _ITEM and isinstance(source.index, int) and source.index >= 0
        return NumberPlace(base, source.index) if is_item else None

    def _global(self, name: str) -> Any:
        if name not in self._installed:
            self.watches.dict_item(self._globals, name, "globals")
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
            self.watches.type_version(base if isinstance(base, type) else type(base), source.name)
            return self._evaluate(source, base)
        if kind == "DefaultsSource":
            self.watches.function(base, source.base.name)
            defaults = getattr(base, source.field)
            if isinstance(defaults, dict):
                self.watches.dict_item(defaults, source.idx_key, source.name)
            return defaults[source.idx_key]
        if kind == "WeakRefCallSource":
            return base()  # a reference that was alive stays: the watches hold its object
        if kind in _ITEM:
            return self._item(source, base, covered)
        if kind == "NonSerializableSetGetItemSource" and isinstance(base, (set, frozenset)):
            if not covered:
                self.watches.set_items(base, source.base.name)
            return list(base)[source.index]
        if kind in _ATTRIBUTE:
            member = {"ClosureSource": "__closure__", "CodeSource": "__code__"}.get(kind)
            return self.attribute(base, member or source.member, source.base.name, covered)
        if not (covered and kind == "TensorPropertySource"):
            self.watches.cannot_watch(f"{source.name} ({kind})")
        return self._evaluate(source, base)

    def _evaluate(self, source: Any, base: Any) -> Any:
        from torch._dynamo import guards

        names = dict(guards._get_closure_vars())
        names["___base"] = base
        try:
            return eval(source._name_template.format("___base"), names)
        except Exception as error:
            raise_of_handler(error)
            raise UnresolvedError(source.name) from error

    def _item(self, source: Any, base: Any, covered: bool) -> Any:
        index = source.index
        if type(source).__name__ == "ConstDictKeySource":
            if not covered:
                self.watches.dict_version(base, source.base.name)
            from torch._dynamo.utils import dict_keys_getitem

            return dict_keys_getitem(base, index)  # of 2.11 by the order of an OrderedDict
        if hasattr(index, "_name_template"):
            index, _ = self.resolve(index)
        if getattr(source, "index_is_slice", False):
            index = source.unpack_slice()
        if isinstance(base, (dict, types.MappingProxyType)):
            if isinstance(base, dict):
                if not covered:
                    self._note_state_dict(source.base, index)
                    self.note_container(base, source.base.name)
                    self.watches.dict_item(base, index, source.base.name)
                return dict.__getitem__(base, index)
            self.watches.read_attribute(index)
            return base[index]
        if isinstance(base, list):
            if not covered:
                self.note_list(base, source.base.name)
            return list.__getitem__(base, index)
        if type(base) is collections.deque:
            if not covered:
                self.note_list(base, source.base.name)
            return base[index]
        if not isinstance(base, tuple) and not covered:
            self.watches.cannot_watch(f"{source.name} (item of a {type(base).__qualname__})")
        return base[index]

    def _note_state_dict(self, source: Any, member: Any) -> None:
        """An item of `module._modules` is an attribute that nothing must hide."""
        if getattr(source, "member", None) in MODULE_STATE and isinstance(member, str):
            module, _ = self.resolve(source.base)
            if isinstance(module, torch.nn.Module):
                self.module_lookup(module, member, source.base.name)


def _class_place(kind: type, name: Any) -> NumberPlace | None:
    """Where an attribute of a class is: in the class, or one of its bases, that can be changed."""
    for base in kind.__mro__:
        if name in vars(base):
            is_plain = type(kind) in (type, abc.ABCMeta) and base.__flags__ & HEAP_TYPE
            return NumberPlace(base, name) if is_plain else None
    return None
