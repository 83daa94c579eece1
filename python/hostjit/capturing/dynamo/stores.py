# SPDX-License-Identifier: Apache-2.0
"""Changes of Python objects that a call makes.

Dynamo writes code for them, which runs after the graph. Where a call changes nothing but numbers
and other constants, in places that are there already, it is told to leave that out: the caller puts
them there itself.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

from torch._dynamo import variables
from torch._dynamo.codegen import PyCodegen
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.source import AttrSource, DictGetItemSource, GetItemSource, GlobalSource

from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.dynamo.entry import TARGET_NAME
from hostjit.capturing.dynamo.growing_lists import adding_to_lists, growing_names
from hostjit.capturing.dynamo.source_values import value_at
from hostjit.capturing.instances import instance_dict
from hostjit.replacements import replaced_attribute

__all__ = ["Changes", "Store", "recording_changes"]

# Of what is stored as it is. Immutable, and the same object at every call does no harm.
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None))
# An object of a class that is derived from one of these is made first, and filled by code for
# changes.
_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque)

_SETTERS: Any = (object.__setattr__, types.SimpleNamespace.__setattr__)
_NO_OBJECTS = (variables.CellVariable, variables.NewGlobalVariable)


@dataclasses.dataclass(frozen=True, eq=False)
class Store:
    """A number or a constant that a call puts in the place of what is there.

    Attributes:
        source: Dynamo's, of the place.
        result: of Dynamo's graph, by position; None for a constant.
        value: the constant.
    """

    source: Any
    result: int | None
    value: Any = None


@dataclasses.dataclass(eq=False)
class Changes:
    """The changes of existing objects by one call.

    Attributes:
        described: those that Dynamo's code makes, in words.
        classes: of the objects that are changed.
        stores: those that the caller is to make once a call has its result, in this order.
        grown: Dynamo's names of lists and deques that the call only adds to.
    """

    described: list[str] = dataclasses.field(default_factory=list)
    classes: set[type] = dataclasses.field(default_factory=set)
    stores: list[Store] = dataclasses.field(default_factory=list)
    grown: set[str] = dataclasses.field(default_factory=set)


@contextlib.contextmanager
def recording_changes(
    numbers: Collection[str], classes: ByFields, has_more: Callable[[], bool]
) -> Iterator[Changes]:
    """Record what existing objects a call changes; Dynamo's output forgets them.

    Objects that the call itself makes do not count: they reach the user only as a result.

    Args:
        numbers: the numbers of these sources come from the graph wherever the code needs them.
        classes: of the arguments of which each call may bring other objects.
        has_more: tells whether the call goes on behind what Dynamo traces.
    """
    found = Changes()
    owner = threading.get_ident()
    update = SideEffects.codegen_update_mutated
    generate = PyCodegen.__call__

    def record(self: Any, codegen: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != owner:
            return update(self, codegen, *args, **kwargs)
        # It is called twice, the second time for good.
        found.stores = [] if has_more() else _plain_stores(self, codegen, classes)
        found.described = [] if found.stores else _describe(self)
        found.classes = set(_changed_classes(self))
        found.grown = growing_names(self)
        if found.stores:
            return None
        with adding_to_lists(self, codegen):
            return update(self, codegen, *args, **kwargs)

    def hand_over(self: Any, value: Any, allow_cache: bool = True) -> None:
        is_number = isinstance(value, variables.SymNodeVariable) and (
            value.python_type() is float or getattr(value.source, "name", None) in numbers
        )
        if threading.get_ident() != owner or not is_number:
            return generate(self, value, allow_cache)
        key = self.add_graph_output(value)
        self.load_graph_output(self.graph_outputs[key].index)
        self.top_of_stack = value
        return None

    with (
        replaced_attribute(SideEffects, "codegen_update_mutated", record),
        replaced_attribute(PyCodegen, "__call__", hand_over),
    ):
        yield found


def _describe(effects: Any) -> list[str]:
    described: list[str] = []
    for variable in _changed(effects):
        where = "an object" if variable.source is None else variable.source.name
        described.append(f"changes {where} ({variable.python_type_name()})")
    if effects.tensor_hooks:
        described.append("registers a hook on a tensor")
    return list(dict.fromkeys(described))


def _changed_classes(effects: Any) -> Iterator[type]:
    for variable in _changed(effects):
        if variable.source is not None and not isinstance(variable, _NO_OBJECTS):
            yield variable.python_type()


def _changed(effects: Any) -> Iterator[Any]:
    for variable in effects._get_modified_vars():
        if not type(variable.mutation_type).__name__.endswith("New"):
            yield variable


def _plain_stores(effects: Any, codegen: Any, classes: ByFields) -> list[Store]:
    """Return what the changes come down to; nothing where that is not all there is to them."""
    if effects.tensor_hooks:
        return []
    made = (v for v in effects._get_modified_vars() if v not in set(_changed(effects)))
    if any(_is_filled_later(effects, variable) for variable in made):
        return []
    stores: list[Store] = []
    for variable in _changed(effects):
        for source, value in _places(effects, variable, codegen.tx):
            if source is None or isinstance(value, variables.DeletedVariable):
                return []
            if _is_each_calls_own(source, codegen.tx, classes):
                return []
            value = value.realize()
            if isinstance(value, variables.SymNodeVariable):
                key = codegen.add_graph_output(value)
                stores.append(Store(source, codegen.graph_outputs[key].index))
            elif value.is_python_constant() and type(value.as_python_constant()) in _CONSTANTS:
                stores.append(Store(source, None, value.as_python_constant()))
            else:
                return []
    return stores


def _is_filled_later(effects: Any, variable: Any) -> bool:
    """Whether code that makes changes puts something into an object that the call makes."""
    is_container = isinstance(getattr(variable, "value", None), _CONTAINERS)
    return is_container or bool(effects.store_attr_mutations.get(variable))


def _places(effects: Any, variable: Any, tx: Any) -> Iterator[tuple[Any, Any]]:
    """The sources of the places where a change of an object puts values, and these.

    A source that is None stands for a change of another kind.
    """
    if isinstance(variable, variables.ConstDictVariable):
        yield from _items(variable)
        return
    if type(variable) is variables.ListVariable:
        yield from _elements(variable, tx)
        return
    if isinstance(variable, variables.NewGlobalVariable):
        for name, value in effects.store_attr_mutations[variable].items():
            is_own = isinstance(variable.source, GlobalSource)
            yield (GlobalSource(name) if is_own else None), value
        return
    kinds = (variables.UserDefinedObjectVariable, variables.CellVariable)
    attributes = effects.store_attr_mutations.get(variable)
    # Without one, the items of an object of a subclass of a container are what changed.
    if not isinstance(variable, kinds) or variable.source is None or not attributes:
        yield None, None
        return
    for name, value in attributes.items():
        is_plain = isinstance(variable, variables.CellVariable) or _is_item_of(variable.value, name)
        yield (AttrSource(variable.source, name) if is_plain else None), value


def _items(variable: Any) -> Iterator[tuple[Any, Any]]:
    """Items of a dict that have other values than before; no more and no less of them."""
    before, now = variable.original_items, variable.items
    if variable.python_type() is not dict:
        yield None, None
    if [key.vt for key in now] != list(before):
        yield None, None
    for key, value in now.items():
        if variable.is_new_item(before.get(key.vt), value):
            known = key.vt.is_python_constant() and key.vt.as_python_constant()
            is_plain = isinstance(known, (int, str)) and not isinstance(known, bool)
            yield (DictGetItemSource(variable.source, known) if is_plain else None), value


def _elements(variable: Any, tx: Any) -> Iterator[tuple[Any, Any]]:
    """The same for the elements of a list."""
    before = value_at(tx, variable.source)
    if type(before) is not list or len(before) != len(variable.items):
        yield None, None
        return
    for index, value in enumerate(variable.items):
        place = GetItemSource(variable.source, index)
        where = getattr(value.source, "name", None)
        if where != place.name:
            yield place, value


def _is_each_calls_own(source: Any, tx: Any, classes: ByFields) -> bool:
    """Whether a call may bring another dict, list or object for the one that a place is in."""
    while hasattr(source, "base"):
        if isinstance(source, AttrSource):
            owner = value_at(tx, source.base) if classes else None
            if type(owner) not in classes:
                return False  # of an object that has to be the same
        source = source.base
    return source is None or getattr(source, "local_name", TARGET_NAME) != TARGET_NAME


def _is_item_of(owner: Any, name: str) -> bool:
    """Whether setting an attribute of an object is to set an item of its `__dict__`."""
    if isinstance(owner, _CONTAINERS):
        return False  # it may have been changed as such, too
    if hasattr(getattr(type(owner), name, None), "__set__"):
        return False
    setter: Any = type(owner).__setattr__
    if setter not in _SETTERS and not isinstance(setter, types.FunctionType):
        return False  # such as that of threading.local
    return name in (instance_dict(owner) or {})
