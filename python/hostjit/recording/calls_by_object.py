# SPDX-License-Identifier: Apache-2.0
"""What is known of the calls of a captured function, for each of the objects that they bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from hostjit.recording.replay import Recording, Replay

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
    """Keeps what is known of calls."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, ...], CallsOfObjects] = {}
        self._in_order: list[Replay] = []

    def of(self, objects: Sequence[Any]) -> CallsOfObjects:
        """Return what is known of the calls that bring some objects."""
        key = tuple(map(id, objects))
        known = self._calls.get(key)
        if known is None:
            known = self._calls[key] = CallsOfObjects()
        return known

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
        was_tried = any(calls.tries for calls in self)
        return 0 if was_tried else len(self._calls)

    def add(self, replay: Replay, calls: CallsOfObjects) -> None:
        """Note a recording."""
        calls.replays.append(replay)
        self._in_order.append(replay)

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
