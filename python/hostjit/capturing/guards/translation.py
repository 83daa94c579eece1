# SPDX-License-Identifier: Apache-2.0
"""From Dynamo's guards to watches."""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._guards import Source
from torch.nn.modules import module as torch_module

from hostjit import _C
from hostjit.capturing.arguments import (
    containers_in,
    object_leaves,
    tensor_leaves,
)
from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.dynamic_dims import refusal
from hostjit.capturing.dynamo.call import DynamoCapture
from hostjit.capturing.dynamo.guarded_classes import token_of
from hostjit.capturing.dynamo.identities import Identity
from hostjit.capturing.dynamo.stores import Store
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.guards import kinds
from hostjit.capturing.guards.behaviour import GLOBAL_HOOKS, names_in, watch_behaviour
from hostjit.capturing.guards.known_objects import KnownObjects
from hostjit.capturing.guards.library import functions_now
from hostjit.capturing.guards.numbers import Elements, GuardedNumbers
from hostjit.capturing.guards.sources import SourceWalker, UnresolvedError
from hostjit.capturing.guards.structures import check_arguments, check_structures, classes_in
from hostjit.capturing.guards.watch_list import WatchList
from hostjit.capturing.guards.watches import Watch
from hostjit.capturing.instances import METHODS, instance_dict, is_a
from hostjit.capturing.numbers.open_numbers import NumberPlace

__all__ = ["Guards", "LeftOpen"]


# What nobody tells from an equal one, or what the path to it says which one it is.
_ALWAYS_THEMSELVES: tuple[type, ...] = (
    *(bool, int, float, complex, str, bytes, type(None), type, types.ModuleType),
    *(types.FunctionType, types.BuiltinFunctionType, *METHODS, torch.Tensor),
)

# Of these, attributes are of the class or in the dict of the tensor.
_PLAIN_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})

# Whose lengths are watched with what is in them, or cannot change.
_SIZED = (tuple, list, str, bytes, range, set, frozenset, collections.deque)

# Packages whose classes nobody changes, but those that code asks for what they have.
_UNCHANGED = frozenset({"builtins", "abc", "enum", "typing", "torch"})


@dataclasses.dataclass(frozen=True)
class LeftOpen:
    """What a capture leaves open, as far as guards are concerned.

    Attributes:
        numbers: names of those outside of the arguments that a call may have any value of.
        classes: of arguments that are described with their fields.
        structures: names of what is to be compared as arguments are.
    """

    numbers: frozenset[str]
    classes: ByFields
    structures: frozenset[str]


class Guards:
    """What a program assumes beyond its arguments and the global state, as found at one call.

    Attributes:
        watches: entries to check at every call; when one fails, `CapturedProgram.revalidate`.
        check_every_call: some assumption has no entry (`unwatchable` says which, or an argument
            must lack an attribute), so that `GuardCheck.holds_now` or `CapturedProgram.revalidate`
            has to run at every call.
        absent: attributes that tensors among the arguments must lack: numbers of leaves, and names.
        leaf_checks: what has to hold of leaves as it did, as the names of `_C.Specialization` and
            numbers of leaves: "unmarked" of those that had no attributes of their own, for the same
            end, and "unshifted".
        bound_tensors: tensors that Dynamo met outside of the arguments, those included that a call
            had among its arguments too.
        stores: numbers and constants that a call leaves behind, and where.
        numbers: the ints and floats outside of the arguments that the program was made for, and
            those that it was left open, by Dynamo's names.
        exact: by name what Dynamo compares less exactly than code does: the bits of those floats
            that are not open (-0.0 is 0.0 for Dynamo) and of complex numbers, the elements of sets
            with their types and their order, and the order of OrderedDicts.
        gradients: by the id of a gradient that was read whose it is. Each call may find another.
        structure_places: for each of them where else it may be found, and the structure.
        structures: by name the places of those that are compared as arguments are.
        open_attributes: of classes, which may have other values.
        arrays: ids of NumPy's arrays and numbers outside of the arguments, by Dynamo's names.
        known: the objects that the guards are about, and what they say of them.
    """

    def __init__(self, traced: DynamoCapture, left_open: LeftOpen, dicts_change: bool) -> None:
        self._traced = traced
        self._dicts_change = dicts_change
        self._open = left_open
        self._watches = WatchList()
        self.known = KnownObjects()
        self.absent: set[tuple[int, str]] = set()
        self.leaf_checks: set[tuple[str, int]] = set()
        self.stores: list[tuple[NumberPlace, Store]] = []
        self.gradients: dict[int, torch.Tensor] = {}
        self.structures: dict[str, NumberPlace] = {}
        self._numbers = GuardedNumbers(left_open.numbers, self.structures, self._watches)
        self.numbers, self.exact = self._numbers.numbers, self._numbers.exact
        self.structure_places = self._numbers.places
        self.arrays: dict[str, int] = {}

    @classmethod
    def find(
        cls,
        traced: DynamoCapture,
        left_open: LeftOpen,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        dicts_change: bool = False,
    ) -> tuple[Guards, SourceWalker, list[Any]]:
        """Return them, with what has walked the arguments, and the inputs of Dynamo's graph.

        They keep neither. An input that was not found is None.

        `dicts_change`: look at the keys of dicts, at items that were read and at what is in
        classes, which takes longer, and not for any change.

        Raises CaptureError where one of these can't be found at a call.
        """
        guards = cls(traced, left_open, dicts_change)
        return guards, *guards._derive(args, kwargs)

    def _derive(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[SourceWalker, list[Any]]:
        leaves = tensor_leaves(args, kwargs, self._open.classes)
        self._leaves = {id(leaf): i for i, leaf in enumerate(leaves)}
        walker = self._make_walker(args, kwargs)
        inputs = list(self._find_inputs(walker))
        self.known.inputs = set(map(id, inputs))
        for store in self._traced.changes.stores:
            self._add_store(store, walker)
        for guard in self._traced.output.guards:
            self._add_guard(guard, walker)
        for position in range(len(self._traced.inputs)):
            source = self._traced.input_source(position)
            if source is not None:
                self._visit(source, walker)
        for pair in self._traced.identities:
            self._add_identity(pair, walker)
        self._numbers.note_unread()
        open_places = (self.numbers[name] for name in self._open.numbers & self.numbers.keys())
        self.known.with_numbers = {id(p.holder) for p in open_places if isinstance(p.holder, tuple)}
        self._add_gradients(walker)
        met = (walker.classes | walker.made).values()
        watch_behaviour(self._watches, met, self._traced.traced_code, self._traced.members)
        self._watches.abstract_classes(token_of(self._traced.output))
        functions = functions_now()
        for entry in functions.modules:
            self._watches.functions(entry)
        self._watches.type_version(functions.tensors, "tensors")
        for name in GLOBAL_HOOKS:
            hooks = getattr(torch_module, name, None)
            self._watches.dict_item(vars(torch_module), name, torch_module.__name__)
            if isinstance(hooks, dict):
                self._watches.dict_version(hooks, name)
        if self._dicts_change:
            self._watches.compare_classes(names_in(self._traced.traced_code))
        self.watches: tuple[Watch, ...] = self._watches.entries()
        self.unwatchable: tuple[str, ...] = tuple(self._watches.unwatchable)
        self.check_every_call = bool(self.unwatchable or self.absent)
        self.bound_tensors = tuple(self.known.tensors.values())
        self.open_attributes = self._watches.open_attributes
        return walker, inputs

    def _find_inputs(self, walker: SourceWalker) -> Iterator[Any]:
        for position, tensor in enumerate(self._traced.inputs):
            source = self._traced.input_source(position)
            try:
                yield tensor if source is None else walker.resolve(source)[0]
            except (UnresolvedError, LookupError, AttributeError):
                yield None

    def _make_walker(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> SourceWalker:
        """Return what walks the sources, with the structures found, and check what they may be."""
        changed = self._traced.changes.classes
        containers = containers_in(args, kwargs, self._open.classes)
        check_arguments(containers, self._open.classes)
        objects = set(map(id, object_leaves(args, kwargs, self._open.classes)))

        def walk(watches: WatchList, classes: ByFields) -> SourceWalker:
            return SourceWalker(self._traced, args, kwargs, objects, watches, classes)

        finder = walk(WatchList(), self._open.classes)
        for source in self._structure_sources():
            place = finder.number_place(source)
            if place is not None and place.read_holder() is finder.resolve(source)[0]:
                self.structures[source.name] = dataclasses.replace(place, structure=source.name)
        if self._open.structures - set(self.structures):
            raise refusal("a structure has no place")
        values = [place.read_holder() for place in self.structures.values()]
        check_structures(values, changed, self._traced.traced_code)
        inside = [kind for value in values for kind in classes_in(value)]
        self._classes = self._open.classes.with_all_of(inside)
        walker = walk(self._watches, self._classes)
        for place in self.structures.values():
            walker.structures.add((id(place.holder), place.key))
            self._watches.leave_open(place)
        return walker

    def _structure_sources(self) -> Iterator[Any]:
        found: dict[str, Any] = {}
        for guard in self._traced.output.guards if self._open.structures else ():
            source = guard.originating_source
            while source is not None:
                if source.name in self._open.structures:
                    found.setdefault(source.name, source)
                source = getattr(source, "base", None)
        yield from found.values()

    def _add_store(self, store: Store, walker: SourceWalker) -> None:
        if hasattr(store.source, "base"):
            self._visit(store.source.base, walker)
        place = walker.number_place(store.source)
        if place is None:
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                f"it changes {store.source.name}, which has no place",
            )
        self.stores.append((place, store))

    def stores_of(self, numbers: Sequence[Any]) -> Iterator[tuple[NumberPlace, Any]]:
        """What a call stores, and where, by the results of Dynamo's graph that are numbers."""
        for place, store in self.stores:
            yield place, store.value if store.result is None else numbers[store.result]

    def identities(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, int | str]:
        """Return for each tensor outside of the arguments what it is: a leaf, or the first of it.

        Dynamo's guards do not compare what is local with what is global. And for containers and
        objects, of which it does not guard that they are different ones.
        """
        found: dict[int, int | str] = {}
        for number, leaf in enumerate(tensor_leaves(args, kwargs, self._open.classes)):
            found.setdefault(id(leaf), number)
        paths = sorted({**self.known.met, **self.known.tensors}.items())
        return {path: found.setdefault(id(tensor), path) for path, tensor in paths}

    def replaceable(self) -> list[Any]:
        """Return the objects in whose place a call may find others; see `KnownObjects`.

        None in which a number is stored, unless it is seen by what is read there what the other is.
        """
        stored = {id(place.holder) for place, _ in self.stores}
        stored -= {id(getattr(entry, "mapping", None)) for entry in self.watches}
        found = self.known.replaceable(self._traced.changes.grown)
        return [value for value in found if id(instance_dict(value)) not in stored]

    def _add_guard(self, guard: Any, walker: SourceWalker) -> None:
        kind = guard.create_fn_name()
        if kind in kinds.GLOBAL_STATE:
            return
        source = guard.originating_source
        if _is_of_thread(source):
            return
        create = guard.create_fn
        extra = create.keywords if isinstance(create, functools.partial) else {}
        rest = create.args if isinstance(create, functools.partial) else ()
        if kind == kinds.HAS_ATTRIBUTE and not extra and not rest and hasattr(source, "member"):
            # Torch 2.11 names the attribute, not the object.
            source, rest = source.base, (source.member,)
        resolved = self._visit(source, walker)
        if resolved is None or walker.stays(source):
            return
        value, covered = resolved
        self.known.note_kind(value, kind)
        if covered and kind == "ID_MATCH" and type(value) in self._classes:
            raise refusal(f"{source.name} has to be one object")
        if not covered or source.name.startswith(tuple(self.structures)):
            self._numbers.note(source, kind, value, walker)
        if isinstance(value, collections.OrderedDict) and kind in kinds.OF_ORDER and not covered:
            self.exact[source.name] = Elements(value)
        if kind == "DUPLICATE_INPUT":
            self._visit(extra.get("source_b", rest[0] if rest else None), walker)
        if kind in (kinds.HAS_ATTRIBUTE, kinds.NOT_HIDDEN):
            member = extra.get("attr", rest[0] if rest else "")
            if covered and id(value) in self._leaves and not hasattr(value, member):
                self._watches.type_version(type(value), source.name)
                leaf = self._leaves[id(value)]
                if type(value) not in _PLAIN_TENSORS or value.__dict__:
                    self.absent.add((leaf, member))
                else:
                    self.leaf_checks.add(("unmarked", leaf))
                return
            watch = walker.attribute if kind == kinds.HAS_ATTRIBUTE else walker.absent_attribute
            watch(value, member, source.name, covered)
        elif covered:
            # Tensors among the arguments are compared by what they are alone.
            if kind not in kinds.OF_ARGUMENTS or (kind == "ID_MATCH" and id(value) in self._leaves):
                self._watches.cannot_watch(f"{source.name} ({kind})")
        elif kind in kinds.WHOLE_DICT and isinstance(value, dict):
            is_stored = any(place.holder is value for place, _ in self.stores)
            if is_stored or (self._dicts_change and kind != "DICT_VERSION"):
                self._watches.dict_keys(value, source.name)
            else:
                self._watches.dict_version(value, source.name)
        elif kind in kinds.BY_VALUE:
            self._watch_contents(value, source.name, walker)
        elif kind == "SEQUENCE_LENGTH":
            if isinstance(value, dict) and self._dicts_change:
                self._watches.dict_keys(value, source.name)
            elif isinstance(value, dict):
                self._watches.dict_version(value, source.name)
            elif not isinstance(value, _SIZED):
                self._watches.cannot_watch(f"{source.name} (length)")
        elif kind in kinds.ONE_KEY and isinstance(value, dict) and "key" in extra:
            self._watches.dict_item(value, extra["key"], source.name)
        elif kind not in kinds.BY_PATH:
            self._watches.cannot_watch(f"{source.name} ({kind})")

    def _add_identity(self, pair: Identity, walker: SourceWalker) -> None:
        """Note whether two values are one object."""
        values = []
        for place in pair:
            found = self._visit(place, walker) if isinstance(place, Source) else (place, False)
            if found is None:
                return
            values.append(found[0])
        self.known.note_compared(values)
        names = (str(getattr(place, "name", place)) for place in pair)
        self.exact[" is ".join(names)] = bytes([values[0] is values[1]])

    def _visit(self, source: Any, walker: SourceWalker) -> tuple[Any, bool] | None:
        """Resolve a source and watch its value."""
        try:
            value, covered = walker.resolve(source)
        except (UnresolvedError, LookupError, AttributeError) as error:
            self._watches.cannot_watch(f"{error}")
            return None
        if walker.stays(source):
            return value, covered
        bases = list(_bases(source, walker))
        self.known.note_path(source.name, value, bases)
        for item, base in zip((value, *bases), bases, strict=False):
            if isinstance(base, (list, collections.deque)):
                self._watches.read_item(base, item)
        if covered and (type(value) in self._classes or isinstance(value, (tuple, list, dict))):
            walker.note_type(value, source.name, covered=True)
        if not covered or id(value) in walker.argument_objects:
            if type(value) in self._classes:
                raise refusal(f"{source.name} may be one of the objects that a call brings")
            if not isinstance(value, _ALWAYS_THEMSELVES):
                self.known.met[source.name] = value
            if source.name not in self._traced.changes.grown:
                self._watch_value(value, source.name, walker)
            return value, False
        return value, covered

    def _watch_value(self, value: Any, path: str, walker: SourceWalker) -> None:
        if isinstance(value, torch.Tensor):
            self.known.tensors[path] = value
            if id(value) not in self.known.inputs:
                self._watches.tensor(value, path)
        elif is_a(value, _C.CompiledFunction):
            return  # what it compiles is read from it
        elif isinstance(value, torch.nn.Module):
            walker.note_module(value, path)
        elif isinstance(value, types.FunctionType):
            self._watches.function(value, path)
        elif isinstance(value, list) or type(value) is collections.deque:
            walker.note_list(value, path)
        elif isinstance(value, (set, frozenset)):
            self._watches.set_items(value, path)
            self.exact[path] = Elements(value)
            self._note_tensors(value, path)
        elif isinstance(value, type):
            self._watches.type_version(value, path)
            if str(value.__module__).partition(".")[0] not in _UNCHANGED:
                walker.made[id(value)] = value
            if type(value).__module__.partition(".")[0] not in _UNCHANGED:
                walker.note_type(value, path, covered=False)
        elif isinstance(value, collections.deque):
            self._watches.cannot_watch(f"{path} (a deque)")
        elif isinstance(value, (tuple, dict)):
            walker.note_container(value, path)
            if isinstance(value, dict):
                self._note_tensors(dict.keys(value), path)
        elif not isinstance(value, types.ModuleType):
            if type(value).__module__ == "numpy":
                self.arrays[path] = id(value)
            walker.note_type(value, path, covered=False)

    def _note_tensors(self, keys: Iterable[Any], path: str) -> None:
        """Note the tensors that are looked up by: which an argument is matters, if it is one."""
        if not self._leaves:
            return
        for index, key in enumerate(keys):
            if isinstance(key, torch.Tensor):
                self.known.tensors.setdefault(f"key {index} of {path}", key)

    def _watch_contents(self, value: Any, path: str, walker: SourceWalker) -> None:
        """Watch a value that was compared by equality, containers all the way down."""
        if isinstance(value, dict):
            self._watches.dict_version(value, path)
        elif isinstance(value, list):
            walker.note_list(value, path)
            self._watches.whole_list(value)
        elif not isinstance(value, tuple):
            return
        items = value.values() if isinstance(value, dict) else value
        for index, item in enumerate(items):
            self._watch_contents(item, f"{path}[{index}]", walker)
            if isinstance(item, (set, collections.deque)):
                self._watch_value(item, f"{path}[{index}]", walker)

    def _add_gradients(self, walker: SourceWalker) -> None:
        """Watch gradients, which others replace: what is computed with one is read at each call."""
        values = [value for value, _, _ in walker.gradients.values() if value is not None]
        for value, owner, path in walker.gradients.values():
            if value is None:
                self._watches.gradient(owner, path)
                continue
            others = self._leaves.keys() | self.known.read_from
            is_plain = self.known.kinds.get(id(value), set()) <= kinds.OF_GRADIENTS
            is_alone = id(value) not in others and sum(other is value for other in values) == 1
            if not is_plain or not is_alone:
                self._watches.cannot_watch(f"{path}.grad, which is more than a gradient")
                continue
            self._watches.gradient(owner, path)
            self._watches.leave_tensor(value)
            tensors = self.known.tensors.items()
            self.known.tensors = {at: found for at, found in tensors if found is not value}
            self.gradients[id(value)] = owner


def _is_of_thread(source: Any) -> bool:
    """Tell whether a source begins at the state of the thread, which the caller compares."""
    while hasattr(source, "base"):
        source = source.base
    return type(source).__name__ in kinds.GLOBAL_SOURCES


def _bases(source: Any, walker: SourceWalker) -> Iterator[Any]:
    """The values that the path of a resolved source goes through."""
    while hasattr(source, "base"):
        source = source.base
        yield walker.resolve(source)[0]
