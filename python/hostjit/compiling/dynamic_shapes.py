# SPDX-License-Identifier: Apache-2.0
"""Which dims and numbers to compile for any value: those asked for, and those that varied."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

import torch

from hostjit.capturing.arguments import tensor_leaves
from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.dynamic_dims import MARKED_STATIC, DynamicDims, open_dims
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.guards.structures import differ_in_numbers_alone
from hostjit.capturing.instances import is_a
from hostjit.capturing.numbers.item_reads import ItemReads
from hostjit.capturing.numbers.open_numbers import (
    OF_ARGUMENTS,
    NumberPlace,
    may_be_open,
    named_numbers,
    number_leaves,
)
from hostjit.capturing.opened import Opened
from hostjit.capturing.outside_sizes import OutsideSizes
from hostjit.capturing.tensors import looking_at_tensors
from hostjit.compiling.leaf_histories import LeafHistories, Leaves, leaves_by_name
from hostjit.compiling.named_dims import named_dims
from hostjit.compiling.varying_objects import VaryingObjects
from hostjit.dims import Dim

if TYPE_CHECKING:
    from hostjit.capturing.dynamo.call import DynamoCapture

__all__ = ["DynamicShapes", "Refusal"]

# The tensors of a call, and the types of its numbers.
_Key = tuple[tuple[tuple[torch.dtype, int], ...], tuple[type, ...]]
# Their names besides, and whether gradients are enabled.
_Kind = tuple[tuple[str, ...], _Key, bool]
# Set by torch._dynamo.mark_dynamic and maybe_mark_dynamic and by mark_unbacked, by mark_static.
_MARKS = (
    "_dynamo_dynamic_indices",
    "_dynamo_weak_dynamic_indices",
    "_dynamo_unbacked_indices",
    "_dynamo_strict_unbacked_indices",
)


@dataclasses.dataclass(frozen=True)
class Refusal:
    """What is no longer left open.

    Attributes:
        part: that, and nothing else.
        undo: leaves it open again.
    """

    part: Opened
    undo: Callable[[], None]


class DynamicShapes:
    """Remembers the shapes and the numbers of one callable's calls.

    `dynamic` is True for all dims and numbers, False for none but those marked, None for those that
    vary: the second size of a dim makes it one for any size, the second value of a number
    makes it one for any value. `dynamic_shapes` names dims as torch.export does; its ranges and
    names are not enforced.

    Attributes:
        reads: what the callable reads from tensors.
    """

    def __init__(self, dynamic: bool | None, dynamic_shapes: Any) -> None:
        self._dynamic = dynamic
        self._named = dynamic_shapes
        # What varies in one kind of call varies in all.
        self._leaves = LeafHistories()
        self._refused: set[tuple[_Key, bool]] = set()
        # Kinds of calls that have programs, and those of which one is for the sizes of a call.
        self._kinds: set[_Kind] = set()
        self._of_one_call: set[_Kind] = set()
        self._refused_numbers: set[tuple[_Key, bool]] = set()
        # Numbers outside of the arguments, by Dynamo's names: where, and the first value.
        self._outside: dict[str, tuple[NumberPlace, Any]] = {}
        self._varied_outside: set[str] = set()
        self._refused_outside: set[str] = set()
        # The structures that they are in, the nearest first, and which of them were replaced.
        self._structures: dict[str, list[tuple[NumberPlace, Any]]] = {}
        self._replaced: set[str] = set()
        self._refused_structures: set[str] = set()
        self._objects = VaryingObjects()
        self._bound: dict[_Key, dict[int, Dim]] = {}
        self.reads = ItemReads()
        self._sizes = OutsideSizes()

    def keywords(self) -> dict[str, Any]:
        """Return what the constructor was given."""
        return {"dynamic": self._dynamic, "dynamic_shapes": self._named}

    @property
    def classes(self) -> ByFields:
        """Those of arguments of which calls bring other objects."""
        return self._objects.classes

    @looking_at_tensors
    def opened(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Opened:
        """Return what to leave open in a capture for this call."""
        classes = self.note_objects(target, args, kwargs)
        leaves = leaves_by_name(target, args, kwargs, classes)
        self._leaves.note(leaves)
        dims = self._dims(target, args, kwargs, leaves)
        numbers = self._numbers(args, kwargs, leaves)
        is_closed = self._dynamic is False or self.reads.refused
        outside = self._outside_numbers()
        return Opened(
            dims,
            numbers,
            outside,
            self._equal_numbers(outside),
            classes,
            reads=None if is_closed else self.reads,
            sizes=None if self._dynamic is False else self._sizes,
        )

    @looking_at_tensors
    def refuse(
        self,
        opened: Opened,
        target: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        error: Exception,
    ) -> Refusal | None:
        """Leave less open from now on than was tried for this call; None where nothing was.

        First what is read from tensors, unless the call raises; then sizes of tensors outside of
        the arguments, then what is open of objects, then of numbers outside of the arguments, then
        guesses, then the numbers and last the dims of calls like this one.
        """
        raises = isinstance(error, CaptureError) and error.failure is CaptureFailure.USER_EXCEPTION
        if opened.reads is not None and opened.reads.found and not raises:
            return Refusal(Opened(reads=opened.reads), opened.reads.refuse())
        if opened.sizes is not None and opened.sizes.found:
            return Refusal(Opened(sizes=opened.sizes), opened.sizes.refuse())
        if opened.classes:
            return Refusal(Opened(classes=opened.classes), self._objects.refuse())
        if opened.outside:
            undo = self._refuse_outside_numbers(opened.outside)
            return Refusal(Opened(outside=opened.outside), undo)
        if opened.dims and self._dynamic is None:
            leaves = leaves_by_name(target, args, kwargs, self._objects.classes)
            guess_again = self._leaves.guess_no_more(leaves)
            if guess_again is not None:
                return Refusal(Opened(), guess_again)
        key = self._key(args, kwargs), torch.is_grad_enabled()
        if opened.numbers:
            self._refused_numbers.add(key)
            part = Opened(numbers=opened.numbers)
            return Refusal(part, functools.partial(self._refused_numbers.discard, key))
        if opened.dims:
            self._refused.add(key)
            part = Opened(dims=opened.dims)
            return Refusal(part, functools.partial(self._refused.discard, key))
        return None

    def _dims(
        self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], leaves: Leaves
    ) -> DynamicDims:
        """Return the dims to leave open, by tensor leaf."""
        if (self._key(args, kwargs), torch.is_grad_enabled()) in self._refused:
            return {}
        found = self.asked_for(target, args, kwargs)
        if self._dynamic is not None:
            return found
        tensors = [(name, value) for name, value in leaves if is_a(value, torch.Tensor)]
        for number, (name, leaf) in enumerate(tensors):
            varied = self._leaves.varying(name, leaf)
            wanted = open_dims(leaf, varied - getattr(leaf, MARKED_STATIC, set()))
            if wanted:
                found.setdefault(number, set()).update(wanted)
        return found

    def asked_for(
        self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[int, set[int]]:
        """Return those of these dims that the user said to leave open."""
        named: dict[int, set[int]] = {}
        if self._named is not None:
            named = named_dims(self._named, target, args, kwargs, self._objects.classes)
        found: dict[int, set[int]] = {}
        for number, leaf in enumerate(tensor_leaves(args, kwargs, self._objects.classes)):
            wanted = set(range(leaf.dim())) if self._dynamic else set()
            wanted -= getattr(leaf, MARKED_STATIC, set())
            wanted |= named.get(number, set())
            for marks in _MARKS:
                wanted |= getattr(leaf, marks, set())
            if wanted := open_dims(leaf, wanted):
                found[number] = wanted
        return found

    def _numbers(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], leaves: Leaves
    ) -> Set[int]:
        """Return the numbers to leave open in a capture for this call, by number leaf."""
        numbers = [(name, value) for name, value in leaves if not is_a(value, torch.Tensor)]
        found = [value for _, value in numbers]
        key = self._key(args, kwargs)
        bound = set(self._bound.get(key, ()))
        if not found or (self._dynamic is False and not bound):
            return frozenset()
        varied = {i for i, number in enumerate(numbers) if self._leaves.varying(*number)}
        if self.refuses_numbers(args, kwargs):
            return frozenset()
        if self._dynamic is False:
            return bound
        # 0 and 1 are flags and defaults more often than numbers that vary.
        wanted = {i for i, value in enumerate(found) if self._dynamic and value not in (0, 1)}
        wanted |= varied | bound
        return {i for i in wanted if may_be_open(found[i])}

    def ask_for(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], dims: Mapping[int, Dim]
    ) -> None:
        """Leave numbers open from now on that a call has bound to Dims, by number leaf."""
        if dims:
            self._objects.refuse_all()  # which would be counted with their fields
            self._bound.setdefault(self._key(args, kwargs), {}).update(dims)

    def dims_known(
        self, positions: Set[int], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> list[str]:
        """Return the names of bound Dims among these numbers, but for 0 and 1."""
        bound = self._bound.get(self._key(args, kwargs), {})
        leaves = number_leaves(args, kwargs) if bound else []
        return [bound[i].name for i in positions if i in bound and leaves[i][1] not in (0, 1)]

    def refuses_numbers(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Tell whether calls like this one are compiled for their own numbers."""
        key = self._key(args, kwargs)
        is_refused = (key, torch.is_grad_enabled()) in self._refused_numbers
        return is_refused or (self._dynamic is False and not self._bound.get(key))

    @property
    def refuses_objects(self) -> bool:
        """Whether calls are compiled for the objects that they bring, whatever is in these."""
        return self._objects.are_refused

    def may_replace_program(
        self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> bool:
        """Tell whether calls like this one have a program for one, and may have one for any.

        That is so once for each kind of call.
        """
        if not self.opened(target, args, kwargs).varies:
            return False
        kind = self._kind(target, args, kwargs)
        may_replace = kind in self._of_one_call
        self._of_one_call.discard(kind)
        return may_replace

    def replaces_program(
        self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, is_open: bool
    ) -> bool:
        """Note a program; tell whether it answers for one that was made for a call's own sizes.

        `is_open`: whether it is for any sizes or numbers.
        """
        kind = self._kind(target, args, kwargs)
        is_first = kind not in self._kinds
        self._kinds.add(kind)
        if is_first and not is_open:
            self._of_one_call.add(kind)
        elif is_open and kind in self._of_one_call:
            self._of_one_call.discard(kind)
            return True
        return False

    def _kind(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Kind:
        """Which tensors and numbers a call has, by the names of parameters."""
        leaves = leaves_by_name(target, args, kwargs, self._objects.classes)
        names = tuple(name for name, _ in leaves)
        return names, self._key(args, kwargs), torch.is_grad_enabled()

    @looking_at_tensors
    def note_objects(
        self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> ByFields:
        """Return the classes of arguments that are compared by their fields: objects of them vary.

        Their fields count among the leaves of calls from now on, and are nowhere else.
        """
        before = self._objects.note(args, kwargs)
        if before is not None:
            for name in [name for name in self._outside if name.startswith(OF_ARGUMENTS)]:
                del self._outside[name]
            self._leaves.note(leaves_by_name(target, *before, self._objects.classes))
        return self._objects.classes

    def note_fields(self, traced: DynamoCapture) -> bool:
        """Remember which fields of objects code reads; tell whether some were not compared."""
        return self._objects.note_fields(traced.field_reads, is_whole=traced.broke is None)

    def note_outside(
        self,
        found: Mapping[str, NumberPlace],
        structures: Mapping[str, list[tuple[NumberPlace, Any]]],
    ) -> None:
        """Remember the numbers outside of the arguments that a program was made for.

        `structures`: those that they are in, the nearest first.
        """
        for name, place in found.items():
            now = place.read()
            _, first = self._outside.get(name, (place, now))
            self._outside[name] = place, first
            self._structures[name] = structures.get(name, [])

    def _outside_numbers(self) -> dict[str, NumberPlace]:
        """Return the numbers to leave open now, of those outside of the arguments."""
        if self._dynamic is False:
            return {}
        found: dict[str, NumberPlace] = {}
        for name, (noted, first) in self._outside.items():
            place = self._place_now(name, noted)
            if place is None:
                continue
            now: Any = place.read()
            if type(now) is not type(first) or name in self._refused_outside:
                continue
            if now != first:
                self._varied_outside.add(name)
            if name in self._varied_outside and may_be_open(now):
                found[name] = place
        for place in [place for place in found.values() if place.structure]:
            found.update(self._unread(place))
        return found

    def _equal_numbers(self, found: Mapping[str, NumberPlace]) -> dict[str, Hashable]:
        """Return groups of those at one key of dicts that were equal, and are, by name."""
        groups = {
            name: (place.key, type(first), repr(first), repr(place.read()))
            for name, place in found.items()
            if type(place.holder) is dict and not place.structure
            for first in (self._outside[name][1],)
        }
        counts = collections.Counter(groups.values())
        return {name: group for name, group in groups.items() if counts[group] > 1}

    def _unread(self, place: NumberPlace) -> Iterator[tuple[str, NumberPlace]]:
        """Yield the numbers of a structure that no program has looked at, which may differ, too."""
        for path, value in named_numbers(place.read_holder(), ""):
            name = place.structure + path
            if name not in self._outside and may_be_open(value):
                yield name, dataclasses.replace(place, path=path)

    def _place_now(self, name: str, noted: NumberPlace) -> NumberPlace | None:
        """Where a number is: in the outermost structure of which there are others, if any."""
        place: NumberPlace
        for place, structure in reversed(self._structures.get(name, [])):
            if place.structure in self._refused_structures:
                continue
            now = place.read_holder()
            if now is not structure:
                self._replaced.add(place.structure)
            if now is not structure and not differ_in_numbers_alone(now, structure):
                self._refused_structures.add(place.structure)
                continue
            if place.structure in self._replaced:
                return place
        return None if noted.structure in self._refused_structures else noted

    def _refuse_outside_numbers(self, found: Mapping[str, NumberPlace]) -> Callable[[], None]:
        """Compile for the values of these numbers from now on; returns what undoes that.

        Where some are in structures, their structures are only taken for the objects that they are.
        """
        structures = {place.structure for place in found.values() if place.structure}
        refused = self._refused_structures if structures else self._refused_outside
        names = (structures or set(found)) - refused
        refused |= names
        return lambda: refused.difference_update(names)

    def _key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Key:
        leaves = tensor_leaves(args, kwargs, self._objects.classes)
        found = number_leaves(args, kwargs, self._objects.classes)
        numbers = tuple(type(value) for _, value in found)
        return tuple((leaf.dtype, leaf.dim()) for leaf in leaves), numbers
