# SPDX-License-Identifier: Apache-2.0
"""What a captured method of one object tells: about its recordings, apart from those of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hostjit import _C
from hostjit.compiling.inspection import Inspection

if TYPE_CHECKING:
    from hostjit.profiling import Profile
    from hostjit.recording.recordings import Recordings
    from hostjit.recording.replays.replay import Recording

__all__ = ["CapturedMethod", "answers"]


class CapturedMethod(Inspection):
    """Answers questions that a `_C.CompiledMethod` is asked.

    Recordings that compare the fields of new objects, instead of being for one, are those of each
    object of the class.
    """

    records = True

    def __init__(self, owner: Recordings, function: _C.CompiledFunction, instance: Any) -> None:
        super().__init__()
        self._owner = owner
        self._function = function
        self._instance = instance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    @property
    def specializations(self) -> list[_C.Specialization]:
        """What may answer calls of this object, most recently used first."""
        return [x for x in self._function.specializations if answers(x, self._instance)]

    @property
    def captured(self) -> Recording | None:
        """What was recorded last of a call of this object; None before."""
        return self._owner.last_among(self.specializations)

    def reset(self) -> None:
        """Forget the recordings of this object: its next call is its first."""
        self._owner.reset_calls_of(self._instance)

    def match(self, *args: Any, **kwargs: Any) -> _C.Specialization | None:
        """Return the specialization that would answer this call, or None."""
        return self._function.match(self._instance, *args, **kwargs)

    def call_boxed(self, arguments: list[Any]) -> Any:
        """As that of a function, without the object."""
        arguments.insert(0, self._instance)
        return self._function.call_boxed(arguments)

    def profile(self, *args: Any, calls: int = 100, **kwargs: Any) -> Profile:
        """Measure each node of the program that answers a call of this object."""
        return self._function.profile(self._instance, *args, calls=calls, **kwargs)

    def static_reasons(self) -> list[str]:
        """Return why there are programs for one combination of sizes, of all objects."""
        return self._owner.static_reasons()

    def _program(self) -> _C.CompiledProgram:
        programs = [x.program for x in self.specializations if x.program]
        if programs:
            return programs[0]
        if self.specializations:  # of what has taken over
            return self._owner._program()
        raise _C.Error("nothing is compiled of this object yet: call its method")


def answers(specialization: _C.Specialization, instance: Any) -> bool:
    """Tell whether calls of a method of an object may be answered by a specialization."""
    positional, _ = specialization.describe()["arguments"]
    if not positional:
        return True  # of any arguments, once recording was given up
    kind, found = positional[0][:2]  # fields or items are compared for all objects of a class
    return bool(kind != "identity" or found is instance)
