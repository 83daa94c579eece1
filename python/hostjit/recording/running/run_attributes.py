# SPDX-License-Identifier: Apache-2.0
"""What a call that is recorded does with the attributes that are known to be its own affair.

Those of `Attributes`: assigned by each call, replaced of what they were, or another number each
time. A call may show that one is used otherwise, or that there are more.
"""

from __future__ import annotations

import contextlib
import itertools
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from hostjit.bytecode.uses import uses_of_attribute
from hostjit.capturing.guards.structures import compares_identities
from hostjit.capturing.instances import instance_dict
from hostjit.compiling.numbers_outside import NumberOutside
from hostjit.recording.code.libraries import is_library, is_own
from hostjit.recording.code.seen_code import Unseen
from hostjit.recording.graph.inputs import Kept, OpenArgument
from hostjit.recording.graph.kept_numbers import attribute_is_kept, is_kept
from hostjit.recording.graph.open_arguments import may_be_any
from hostjit.recording.graph.read_numbers import ReadNumber
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.graph.references import replace_everywhere
from hostjit.recording.reach.attributes import Accesses, Attribute, Attributes, Owners
from hostjit.recording.reach.entries import attribute_at
from hostjit.recording.reach.state import State
from hostjit.recording.stand_in import StandIn

__all__ = ["RunAttributes", "attributes_of"]

_NONE: frozenset[str] = frozenset()


class RunAttributes:
    """Those attributes, in one call that is recorded.

    Attributes:
        accesses: how the call uses them, while that is entered.
    """

    def __init__(self, attributes: Attributes, state: State) -> None:
        """Have a state look at none of them."""
        self._assigned, self._kept = attributes.by_owner(), attributes.kept_by_owner()
        self._numbers = attributes.numbers_by_owner()
        self._state = state
        for owner, names in self._owners():
            mapping = id(instance_dict(owner))
            state.left_alone[mapping] = state.left_alone.get(mapping, _NONE) | names
        self.accesses = Accesses(self._assigned, self._kept, self._numbers, self._stand_in)

    def _owners(self) -> Iterator[tuple[Any, frozenset[str]]]:
        return itertools.chain(self._assigned.values(), self._kept.values(), self._numbers.values())

    def give_to(self, recorder: Recorder) -> None:
        """Give a recorder what they are as the call begins."""
        self._recorder = recorder
        self._keys_of_kept: dict[int, tuple[int, str]] = {}
        # What stands for numbers that the call reads, by the keys of the attributes.
        self._stand_ins: dict[tuple[int, str], tuple[int | float, torch.Tensor]] = {}
        self._left = self._keep() | _no_numbers(self._numbers)
        self._tensors_before = {
            key: names & _plain_tensors(owner).keys()
            for key, (owner, names) in self._assigned.items()
        }
        self._numbers_before = {
            key: frozenset(name for name in names if _is_number(_value_of(owner, name)))
            for key, (owner, names) in self._assigned.items()
        }
        recorder.takes_number = self._takes_number

    def _keep(self) -> set[tuple[int, str]]:
        """Give the program what attributes have; return those that are no tensors, or one tensor.

        By `Attribute.key`.
        """
        left: set[tuple[int, str]] = set()
        for owner, names in self._kept.values():
            attributes, tensors = instance_dict(owner) or {}, _plain_tensors(owner)
            for name in sorted(names):
                tensor = tensors.get(name)
                if tensor is None or id(tensor) in self._recorder.kept:
                    left.add((id(owner), name))
                else:
                    self._recorder.kept[id(tensor)] = Kept(tensor, attributes, name)
                    self._keys_of_kept[id(tensor)] = id(owner), name
        return left

    def are_left_alone(self) -> bool:
        """Tell whether no code looks at all the attributes of their objects."""
        return all(self._state.leaves_alone(owner) for owner, _ in self._owners())

    def show_in(self, attributes: Attributes) -> bool:
        """Note in what is known of attributes how this call has used them otherwise.

        Tells whether it has: the next call is recorded again.
        """
        if left := self._found_left():
            attributes.leave(left)
        elif used := self._used_otherwise():
            replaced = self._among(used, self._tensors_before)
            numbers = self._among(used, self._numbers_before)
            if not attributes.open(numbers):
                numbers = []
            attributes.refuse(used - {each.key for each in (*replaced, *numbers)})
            attributes.keep(replaced)
        elif seen := self._numbers_seen():
            attributes.refuse(seen)
        else:
            return False
        return True

    def _found_left(self) -> set[tuple[int, str]]:
        """Those that calls replace, and that the program cannot be given.

        Now they are no tensors, or they are what is elsewhere, too: a program has one input for it.
        """
        known = (self._state.tensors, self._state.leaves, self._recorder.asked)
        found = (
            key for tensor, key in self._keys_of_kept.items() if any(tensor in x for x in known)
        )
        return self._left.union(found)

    def _used_otherwise(self) -> set[tuple[int, str]]:
        """Those that this call has used otherwise than others, or might have."""
        used = self.accesses.used_otherwise()
        kept = [x for x in self._recorder.sources if isinstance(x, Kept)]
        if kept and any(itertools.starmap(_tells_apart, self._state.codes.items())):
            used |= self.keys_of(kept)
        return used

    def _numbers_seen(self) -> set[tuple[int, str]]:
        """Those numbers which the call replaces, and which others see.

        They are others at the next call.
        """
        recorder = self._recorder
        keys = {id(tensor): key for key, (_, tensor) in self._stand_ins.items()}
        seen = [read.node for read in recorder.reads if read.expected.dtype is not torch.bool]
        found = {keys.get(id(source.tensor)) for source in recorder.sources_of(seen)}
        return {key for key in found if key is not None and self.accesses.has_assigned(key)}

    def _among(
        self, keys: Iterable[tuple[int, str]], names: Mapping[int, frozenset[str]]
    ) -> list[Attribute]:
        """Those of some that a mapping names, by the ids of their objects."""
        owners = {id(owner): owner for owner, _ in self._owners()}
        return [
            Attribute(weakref.ref(owners[owner]), name)
            for owner, name in keys
            if name in names.get(owner, ())
        ]

    def keys_of(self, kept: Iterable[Kept]) -> set[tuple[int, str]]:
        """Return which attributes, by `Attribute.key`, have some tensors."""
        return {self._keys_of_kept[id(source.tensor)] for source in kept}

    def assigned(self, *, in_pass: bool) -> list[Attribute]:
        """Return the attributes that are all the call has changed; [] where it changed more.

        And where one is a number that others see, or that a pass of a loop changes.
        """
        found = []
        for owner, name in self._state.assigned():
            if _is_number(_value_of(owner, name)) and (in_pass or not self._keeps(name)):
                return []
            try:
                found.append(Attribute(weakref.ref(owner), name))
            except TypeError:  # its slots have no place for that
                return []
        return found

    def _keeps(self, name: str) -> bool:
        """Whether code of users seems to keep a number to itself, which an attribute is."""
        return all(
            is_library(code.co_filename) or uses_of_attribute(code, name) is not None
            for code in self._state.codes
            if name in code.co_names
        )

    def changed_tensors(self) -> list[Attribute]:
        """Return the attributes that were tensors when the call began, and are others now."""
        found = self._state.tensors_of_objects()
        return [each for each, was, now in found if was is not now and _is_plain(was)]

    def tensors_met(self) -> dict[tuple[int, str], tuple[Attribute, int]]:
        """Return the attributes that are tensors, with the ids of these, by `Attribute.key`."""
        found = self._state.tensors_of_objects()
        return {each.key: (each, id(was)) for each, was, _ in found if _is_plain(was)}

    def wanted_numbers(self) -> list[Attribute]:
        """Return the attributes that are to be numbers by which the call does not choose."""
        found = []
        for owner, name in self._recorder.choosing.wanted:
            if _is_number(_value_of(owner, name)):
                with contextlib.suppress(TypeError):  # its slots have no place for that
                    found.append(Attribute(weakref.ref(owner), name))
        return found

    def changed_so_far(self) -> dict[Any, Any]:
        """Return what the call has assigned by now, by places."""
        found: dict[Any, Any] = {("assigned", self.accesses.num_assigned()): None}
        for owner, name in self.accesses.assigned():
            found["assigned", id(owner), name] = _value_of(owner, name)
        return found

    def put_back_numbers(self) -> None:
        """Give others the tensors that they would have in place of what stands for numbers."""
        stand_ins = [value for _, _, value in self.accesses.stand_ins()]
        if stand_ins:
            replace_everywhere(stand_ins, {id(each): each.plain() for each in stand_ins})

    def hand_over(self) -> None:
        """Give objects numbers in place of what stands for them, where code looks at all they are.

        It need not ask for an attribute by its name.
        """
        for owner, name, value in [*self.accesses.stand_ins()]:
            if not self._state.leaves_alone(owner):
                (instance_dict(owner) or {})[name] = value.read()

    def _takes_number(self, owner: Any, name: str) -> bool:
        return self.accesses.takes_number(owner, name) and self._state.leaves_alone(owner)

    def _stand_in(self, owner: Any, name: str, value: Any, frame: types.FrameType) -> Any:
        """What stands for a number among the attributes of an object in the code of a frame."""
        if self.accesses.has_assigned((id(owner), name)):
            if not isinstance(value, StandIn):
                return None
            is_followed = self._is_followed(name, frame)
            return value if is_followed else value.read()
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            if not (_is_number(value) and self._is_followed(name, frame)):
                return None
            key, kind, recorder = (id(owner), name), type(value), self._recorder
            if key not in self._stand_ins:
                dtype = torch.int64 if kind is int else torch.float64
                tensor = torch.tensor(value, dtype=dtype, device="cpu")
                self._stand_ins[key] = value, tensor
                place, slot = (instance_dict(owner), name), len(recorder.opened)
                recorder.add_open(OpenArgument(tensor, slot, kind, None, None, place))
                recorder.has_numbers = True
            known, tensor = self._stand_ins[key]
            if known is not value:  # the call has changed it
                return None
            return ReadNumber(tensor, recorder, is_small=kind is int)

    def _is_followed(self, name: str, frame: types.FrameType) -> bool:
        """Whether the code of a frame, which reads an attribute, keeps the number to itself."""
        with Unseen():
            if is_own(frame.f_code.co_filename):  # it reads for a statement that chooses
                return attribute_is_kept(name, frame, self._recorder)
            is_of_library = is_library(frame.f_code.co_filename)
            return not is_of_library and is_kept(frame, self._recorder, is_attribute=True)


def attributes_of(numbers: Iterable[NumberOutside]) -> list[Attribute]:
    """Return where numbers are; [] if some are no plain attributes of objects."""
    found = []
    for number in numbers:
        attribute = attribute_at(number.holder, *number.place)
        if attribute is None:
            return []
        found.append(attribute)
    return found


def _value_of(owner: Any, name: str) -> Any:
    return (instance_dict(owner) or {}).get(name)


def _is_number(value: Any) -> bool:
    return may_be_any(value) or type(value) is float


def _no_numbers(owners: Owners) -> set[tuple[int, str]]:
    """Those attributes, by `Attribute.key`, that are no numbers now."""
    return {
        (key, name)
        for key, (owner, names) in owners.items()
        for name in names
        if not _is_number(_value_of(owner, name))
    }


def _plain_tensors(owner: Any) -> dict[str, torch.Tensor]:
    """The attributes of an object that are tensors, and no more than their elements."""
    return {
        name: value
        for name, value in (instance_dict(owner) or {}).items()
        if type(value) is torch.Tensor and _is_plain(value)
    }


def _is_plain(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.requires_grad or tensor.is_inference():
        return False
    return not (tensor.is_conj() or tensor.is_neg() or tensor.__dict__) and tensor.grad is None


def _tells_apart(code: types.CodeType, variables: dict[str, Any]) -> bool:
    """Whether code of users may ask which tensor something is."""
    file = code.co_filename
    if is_library(str(variables.get("__file__", file)) if file.startswith("<") else file):
        return False
    return compares_identities(code) or "id" in code.co_names
