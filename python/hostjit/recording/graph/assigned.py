# SPDX-License-Identifier: Apache-2.0
"""Attributes that a statement which chooses assigns: once, when it is known what they become."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hostjit.bytecode.choices import Choice
from hostjit.bytecode.halves import Unset
from hostjit.bytecode.made_code import is_of_choice
from hostjit.bytecode.stored_attributes import variable_of
from hostjit.capturing.instances import instance_dict
from hostjit.recording.stand_in import StandIn

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = ["Assigned"]


class Assigned:
    """The attributes that a choice assigns.

    Attributes:
        places: their objects and names.
        before: what they are; `Unset` where an object has none, and where it has not been read.
    """

    def __init__(self, recorder: Recorder, choice: Choice, taken: Sequence[Any]) -> None:
        """Read those that the statement reads. `taken`: as the choice takes."""
        self._recorder = recorder
        local = dict(zip(choice.region.taken, taken, strict=True))
        self.places = [(local[each.variable], each.name) for each in choice.facts.stores]
        self.before = [
            _read(*place) if each in choice.facts.loads else Unset
            for place, each in zip(self.places, choice.facts.stores, strict=True)
        ]

    def completed(self, values: Any, other: Any) -> Any:
        """Return what a way returns, with what attributes are that another one alone assigns."""
        rest = len(values) - len(self.places)
        found = [*values]
        for index, place in enumerate(self.places, rest):
            if found[index] is Unset and other[index] is not Unset:
                found[index] = self.before[index - rest] = _read(*place)
        return found

    def assign(self, values: Any) -> Any:
        """Assign what they have become; return the rest of what the choice returns."""
        count = len(self.places)
        if not count:
            return values
        pairs = zip(self.places, self.before, values[-count:], strict=True)
        for (owner, name), before, now in pairs:
            if now is not before and now is not Unset:
                setattr(owner, name, self._as_assigned(owner, name, now))
        return values[:-count]

    def assign_ahead(self, error: Exception) -> None:
        """Assign what the way has assigned that raised an error, and cannot be run again."""
        values: dict[str, Any] = {}
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if is_of_choice(frame.f_code):  # of a statement, or of one in that
                values.update(frame.f_locals)
        names = [variable_of(i, name) for i, (_, name) in enumerate(self.places)]
        self.assign([values.get(name, Unset) for name in names])

    def _as_assigned(self, owner: Any, name: str, value: Any) -> Any:
        """What an attribute is given: a number, where others may see what stands for that."""
        if not isinstance(value, StandIn) or self._recorder.takes_number(owner, name):
            return value
        self._recorder.choosing.wanted.append((owner, name))
        return value.read()


def _read(owner: Any, name: str) -> Any:
    """What an object has by a name; `Unset` where that is nothing."""
    return getattr(owner, name) if name in (instance_dict(owner) or {}) else Unset
