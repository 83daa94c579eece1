# SPDX-License-Identifier: Apache-2.0
"""Whether code of a recorded call keeps a number to itself: computes with it, and shows nobody."""

from __future__ import annotations

import builtins
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hostjit.bytecode.made_code import is_of_choice, origin_of, written_as
from hostjit.bytecode.uses import (
    Uses,
    uses_of_attribute,
    uses_of_call,
    uses_of_parameter,
    uses_of_result,
)
from hostjit.capturing.instances import instance_dict
from hostjit.recording.code.deciding import CALLS_OF_MODULES, DECORATING
from hostjit.recording.code.libraries import is_library, is_own
from hostjit.recording.code.seen_code import Unseen
from hostjit.recording.reach.attributes import as_defined

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = [
    "are_kept",
    "attribute_is_kept",
    "callers_keep",
    "first_parameter",
    "is_kept",
    "keeps",
    "returns_to",
]

# So many functions are looked at that call one another.
_DEEPEST = 8
# Code that returns what it is returned: of modules without hooks, and of decorators.
_HANDING_ON = DECORATING.union(CALLS_OF_MODULES)


def keeps(
    code: types.CodeType,
    variables: Mapping[str, Any],
    receiver: Any,
    name: str,
    *,
    may_return: bool = False,
    is_truth: bool = False,
    depth: int = 0,
) -> bool:
    """Tell whether code keeps a number that it is given to itself.

    Args:
        code: of a function.
        variables: the global ones.
        receiver: what its first parameter is.
        name: of the parameter.
        may_return: it may return the number, too.
        is_truth: that is True or False.
        depth: how many functions call one another on the way to it.
    """
    if is_library(code.co_filename) or depth > _DEEPEST:
        return False
    uses = uses_of_parameter(code, name)
    if uses is None or (uses.is_returned and not may_return) or (is_truth and uses.is_identified):
        return False
    if uses.assigned:
        return False  # of what object, others say
    return all(_is_pythons(each, variables) for each in uses.builtins) and all(
        _passes_on(*each, variables, receiver, depth, is_truth) for each in uses.passed
    )


def _passes_on(
    called: str,
    index: int,
    variables: Mapping[str, Any],
    receiver: Any,
    depth: int,
    is_truth: bool,
) -> bool:
    """Whether a function of users, as `Uses.passed` has it, keeps what it is given."""
    is_method = called.startswith(".")
    if is_method:
        name = called.removeprefix(".")
        if name in (instance_dict(receiver) or {}):
            return False
        bases = (vars(base) for base in type(receiver).__mro__)
        found = next((as_defined(base[name]) for base in bases if name in base), None)
    else:
        found = variables.get(called)
    if type(found) is not types.FunctionType:
        return False
    code, index = found.__code__, index + is_method
    if index >= code.co_argcount:
        return False
    owner = receiver if is_method else None
    name = code.co_varnames[index]
    return keeps(code, found.__globals__, owner, name, is_truth=is_truth, depth=depth + 1)


def first_parameter(code: types.CodeType) -> str:
    """Return the name of the first parameter; "" if there is none."""
    return code.co_varnames[0] if code.co_argcount else ""


def is_kept(
    frame: types.FrameType,
    recorder: Recorder,
    *,
    is_float: bool = False,
    is_attribute: bool = False,
) -> bool:
    """Whether no function sees the number that the code of a frame is given now, but its own.

    The caller of the recorded call may.
    """
    with Unseen():
        code, places = written_as(frame.f_code, frame.f_lasti)
        found = [
            uses_of_result(code, place, is_float=is_float, is_attribute=is_attribute)
            for place in places
        ]
    return bool(found) and all(
        uses is not None and are_kept(uses, frame, recorder) for uses in found
    )


def attribute_is_kept(name: str, frame: types.FrameType, recorder: Recorder) -> bool:
    """Tell whether no function sees the number that an attribute is, but the one that decides.

    Args:
        name: of the attribute.
        frame: of code that reads it for a function of users.
        recorder: of the call.
    """
    while is_own(frame.f_code.co_filename):
        assert frame.f_back is not None
        frame = frame.f_back
    uses = uses_of_attribute(origin_of(frame.f_code), name)
    return uses is not None and are_kept(uses, frame, recorder)


def are_kept(
    uses: Uses, frame: types.FrameType, recorder: Recorder, *, is_truth: bool = False
) -> bool:
    """Tell whether what the code of a frame does with a number shows it to nobody.

    Args:
        uses: what it does.
        frame: of a statement that chooses, too, which is part of such code.
        recorder: of the call.
        is_truth: the number is True or False.
    """
    if is_truth and uses.is_identified:
        return False
    if not all(_is_pythons(name, frame.f_globals) for name in uses.builtins):
        return False
    while is_of_choice(frame.f_code):
        frame = _asking(frame)
    receiver = frame.f_locals.get(first_parameter(frame.f_code))
    if not all(recorder.takes_number(receiver, name) for name in uses.assigned):
        return False
    if uses.passed:
        passed = (_passes_on(*x, frame.f_globals, receiver, 0, is_truth) for x in uses.passed)
        if not all(passed):
            return False
    if not uses.is_returned or returns_to(recorder.caller, frame):
        return True
    return uses.places is not None and callers_keep(uses.places, frame, recorder, is_truth=is_truth)


def callers_keep(
    places: frozenset[int], frame: types.FrameType, recorder: Recorder, *, is_truth: bool
) -> bool:
    """Tell whether code keeps numbers to itself that the code of a frame returns to it.

    `places`: where they are in what is returned, as `Uses.places`.
    """
    behind = frame.f_back
    while behind is not None and behind.f_code in DECORATING:
        behind = behind.f_back
    if behind is None or origin_of(frame.f_code) is frame.f_code:
        return False  # it was not called as `CALLED` says: somebody else may have what it returns
    code, offsets = written_as(behind.f_code, behind.f_lasti)
    found = [uses_of_call(code, offset, places) for offset in offsets]
    return bool(found) and all(
        uses is not None and are_kept(uses, behind, recorder, is_truth=is_truth) for uses in found
    )


def _asking(frame: types.FrameType) -> types.FrameType:
    """The frame of the code that has a statement."""
    behind = frame.f_back
    while behind is not None and is_own(behind.f_code.co_filename):
        behind = behind.f_back
    assert behind is not None
    return behind


def returns_to(caller: types.FrameType | None, frame: types.FrameType) -> bool:
    """Tell whether the caller is given what a frame returns, and nobody between looks at it."""
    behind = frame.f_back
    while behind is not caller:
        if behind is None or behind.f_code not in _HANDING_ON:
            return False
        behind = behind.f_back
    return caller is not None


def _is_pythons(name: str, variables: Mapping[str, Any]) -> bool:
    """Whether code with some global variables finds Python's own function by a name."""
    own = getattr(builtins, name)
    of_module = variables.get("__builtins__", builtins)
    others = of_module if isinstance(of_module, dict) else vars(of_module)
    found = variables.get(name, others.get(name))
    return found is own
