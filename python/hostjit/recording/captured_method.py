# SPDX-License-Identifier: Apache-2.0
"""A captured method of one object: its recordings, apart from those of other objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hostjit import _C
from hostjit.inspection import Inspection

if TYPE_CHECKING:
    from hostjit.profiling import Profile
    from hostjit.recording.recordings import Recordings
    from hostjit.recording.replay import Recording

__all__ = ["CapturedMethod", "answers"]


class CapturedMethod(Inspection):
    """What `method.of(instance)` returns: call it without the object, ask it about its recordings.

    Recordings that compare the fields of new objects, instead of being for one, are those of each
    object of the class. It holds the object; recordings hold it, too, until they are forgotten.
    """

    records = True

    def __init__(self, owner: Recordings, function: _C.CompiledFunction, instance: Any) -> None:
        super().__init__()
        self._owner = owner
        self.__func__ = function
        self.__self__ = instance
        self.__doc__ = owner.target.__doc__
        self.__wrapped__ = owner.target.__get__(instance, type(instance))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name[:1] == "_":  # of the method: not what copies and pickles the recordings
            return getattr(self.__dict__["__wrapped__"], name)
        return getattr(self.__dict__["__func__"], name)

    def __eq__(self, other: Any) -> bool:
        same = type(other) is CapturedMethod
        return same and self.__func__ is other.__func__ and self.__self__ is other.__self__

    def __hash__(self) -> int:
        return hash((id(self.__func__), id(self.__self__)))

    def __repr__(self) -> str:
        return f"<captured {self.__wrapped__!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _of, (self.__func__, self.__self__)

    @property
    def specializations(self) -> list[_C.Specialization]:
        """What may answer calls of this object, most recently used first."""
        return [x for x in self.__func__.specializations if answers(x, self.__self__)]

    @property
    def captured(self) -> Recording | None:
        """What was recorded last of a call of this object; None before."""
        return self._owner.last_among(self.specializations)

    def reset(self) -> None:
        """Forget the recordings of this object: its next call is its first."""
        self._owner.reset_calls_of(self.__self__)

    def match(self, *args: Any, **kwargs: Any) -> _C.Specialization | None:
        """Return the specialization that would answer this call, or None."""
        return self.__func__.match(self.__self__, *args, **kwargs)

    def profile(self, *args: Any, calls: int = 100, **kwargs: Any) -> Profile:
        """Measure each node of the program that answers a call of this object."""
        return self.__func__.profile(self.__self__, *args, calls=calls, **kwargs)

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


def _of(function: _C.CompiledFunction, instance: Any) -> CapturedMethod:
    method: CapturedMethod = function.of(instance)
    return method
