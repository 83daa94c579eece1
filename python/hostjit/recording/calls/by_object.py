# SPDX-License-Identifier: Apache-2.0
"""What is known of the calls of a captured function, for each of the objects that they bring."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hostjit import _C
from hostjit.recording.replays.replay import Recording, Replay

__all__ = ["CallsByObject", "CallsOfObjects"]


@dataclasses.dataclass(eq=False)
class CallsOfObjects:
    """The calls that bring the same objects, as far as objects are compared by identity.

    Attributes:
        count: how many have run.
        tries: how many were to be recorded.
        changes: how many of these changed Python state.
        replays: their recordings, in the order of time.
    """

    count: int = 0
    tries: int = 0
    changes: int = 0
    replays: list[Replay] = dataclasses.field(default_factory=list)


class CallsByObject:
    """Keeps what is known of calls until one of their objects is gone.

    Finding that out takes no lock: it happens in the middle of anything, also here, so nothing
    iterates over what it changes.
    """

    def __init__(self, on_gone: Callable[[weakref.ref[Any], set[Replay]], object]) -> None:
        """`on_gone` is called once the recordings for an object that is gone are forgotten.

        With the object and these recordings; not for one of which no call was to be recorded.
        """
        self._on_gone = on_gone
        self._calls: dict[tuple[int, ...], CallsOfObjects] = {}
        self._keys: dict[int, set[tuple[int, ...]]] = {}  # of objects that are held weakly
        self._references: dict[int, weakref.ref[Any]] = {}
        self._in_order: list[Replay] = []
        self._num_gone = 0
        self._was_tried = False

    def of(self, objects: Sequence[Any]) -> CallsOfObjects:
        """Return what is known of the calls that bring some objects."""
        key = tuple(map(id, objects))
        known = self._calls.get(key)
        if known is None:
            known = self._calls[key] = CallsOfObjects()
            for value in filter(_C.is_held_weakly, objects):
                self._watch(value, key)
        return known

    def _watch(self, value: Any, key: tuple[int, ...]) -> None:
        number = id(value)
        self._keys.setdefault(number, set()).add(key)
        if number in self._references:
            return
        this, plain = weakref.ref(self), weakref.ref(value)

        def gone(_: weakref.ref[Any]) -> None:
            known = this()
            if known is not None:
                known._gone(number, plain)

        self._references[number] = weakref.ref(value, gone)

    def _gone(self, number: int, reference: weakref.ref[Any]) -> None:
        self._references.pop(number, None)
        keys = self._keys.pop(number, set())
        known = [self._calls.pop(key) for key in keys if key in self._calls]
        if not any(calls.tries for calls in known):
            self._num_gone += 1
            return
        self._was_tried = True
        forgotten = {replay for calls in known for replay in calls.replays}
        in_order = self._in_order
        self._in_order = [replay for replay in in_order if replay not in forgotten]
        self._on_gone(reference, forgotten)

    def __iter__(self) -> Iterator[CallsOfObjects]:
        found = (self._calls.get(key) for key in list(self._calls))
        return (calls for calls in found if calls is not None)

    def count(self) -> int:
        """How many calls have run, of those that something is known of."""
        return sum(calls.count for calls in self)

    def has(self, calls: CallsOfObjects) -> bool:
        """Tell whether they are still known."""
        return any(known is calls for known in self)

    def num_unrecorded(self) -> int:
        """How many objects calls have brought, if none of these calls was to be recorded."""
        self._was_tried = self._was_tried or any(calls.tries for calls in self)
        return 0 if self._was_tried else len(self._calls) + self._num_gone

    def add(self, replay: Replay, calls: CallsOfObjects) -> None:
        """Note a recording."""
        calls.replays.append(replay)
        self._in_order.append(replay)

    def ways(self) -> list[Replay]:
        """Return the recordings that repeat ways through a pass, from the latest on."""
        return [replay for replay in reversed(self._in_order) if replay.way is not None]

    def last(self, replays: set[Replay | None] | None = None) -> Recording | None:
        """Return what was recorded last, of all calls or of some; None before."""
        known = self._in_order
        found = (x for x in reversed(known) if replays is None or x in replays)
        return next((replay.recording for replay in found), None)

    def forget_all_but(self, kept: set[Replay | None], instance: Any) -> None:
        """Forget the recordings but some, and what else is known of a method of an object."""
        for key in list(self._calls):
            calls = self._calls.get(key)
            if calls is None:
                continue
            if not key or key[0] == id(instance) or not kept.issuperset(calls.replays):
                self._calls.pop(key, None)
        known = self._in_order
        self._in_order = [replay for replay in known if replay in kept]
