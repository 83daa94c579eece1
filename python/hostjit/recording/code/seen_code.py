# SPDX-License-Identifier: Apache-2.0
"""Which Python code runs while a call is recorded, and what it calls that no replay repeats."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from hostjit.recording.code.libraries import (
    acts_for_library,
    is_asked_by_user,
    is_imported,
    is_own,
    user_line,
)
from hostjit.recording.code.repeatable import BY_COPIES, OF_GENERATORS, is_repeatable
from hostjit.recording.running.generator_states import passes_states, seeds
from hostjit.recording.triton import types as triton_types

__all__ = ["SeenCode", "Unseen"]

# State of PyTorch and of the interpreter that calls can't be compared by.
_SETTINGS = frozenset(
    {
        *("_get_fp32_precision_getter", "_is_multithreading_enabled", "getcontext", "_getframe"),
        *("getrefcount", "getallocatedblocks", "isenabled", "get_threshold", "get_count"),
        *("get_objects", "get_referrers", "getprofile", "gettrace", "exc_info", "exception"),
        *("_set_float32_matmul_precision", "_set_fp32_precision_setter"),
    }
)


class SeenCode:
    """Collects the code that runs in this thread, while it is entered.

    Attributes:
        codes: the code that ran.
        problem: the first call that a replay cannot repeat, in words, with its line; "" if none.
        gave_up: code that ran after that was not visited, which would have taken long.
    """

    def __init__(
        self,
        visit: Callable[[types.CodeType, dict[str, Any]], None],
        takes_long: Callable[[], bool] = lambda: False,
        asked: Callable[[types.FrameType], str] = lambda frame: "",
        called: Callable[[types.FrameType, Any], object] = lambda frame, function: None,
        passed: Callable[[types.FrameType, Any], object] = lambda frame, returned: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`visit` is called before code runs for the first time, with its globals.

        Behind a problem it is not where `takes_long` says that it takes long.
        `asked` is called before each run of code of the standard library, with its frame; what it
        returns is a problem. `called` is called before Python code calls a function of C code.
        `passed` is called where code has read, set or seeded the state of random numbers.
        `is_over` tells whether what is still to run is not looked at.
        """
        self.problem = ""
        self.gave_up = False
        self._visit = visit
        self._takes_long = takes_long
        self._asked = asked
        self._called = called
        self._passed = passed
        self._is_over = is_over
        self.codes: set[types.CodeType] = set()
        self._known: dict[tuple[int, int], tuple[types.CodeType, dict[str, Any]]] = {}
        self._before: Any = None

    def __enter__(self) -> SeenCode:
        self._before = sys.getprofile()
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before if callable(self._before) else None)

    def _event(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if self._is_over():
            self.gave_up = True
            sys.setprofile(None)
        elif event == "call":
            code = frame.f_code
            # Equal code may be that of another file, and have other globals.
            known = id(code), id(frame.f_globals)
            if known not in self._known and not is_imported(frame):
                self._known[known] = code, frame.f_globals
                self.codes.add(code)
                problem = triton_types.problem_of(code)
                if problem and not self.problem:
                    self._note(frame, problem)
                if not is_own(code.co_filename) and not triton_types.is_tritons(code):
                    self.gave_up = self.gave_up or (bool(self.problem) and self._takes_long())
                    if not self.gave_up:
                        self._visit(code, frame.f_globals)
            what = self._asked(frame)
            if what and not self.problem and not acts_for_library(frame.f_back):
                self._note(frame, what)
        elif event == "c_call" and not self.problem:
            self._look_at(frame, argument)
        elif not self.problem and (
            (event == "return" and passes_states(frame.f_code))
            or (event == "c_return" and seeds(frame, argument))
        ):
            self._passed(frame, argument)
        elif event == "c_exception" and passes_states(frame.f_code) and not self.problem:
            self._note(frame, "sets a state that its generator does not take")

    def _look_at(self, frame: types.FrameType, function: Any) -> None:
        name = getattr(function, "__name__", "")
        owner = getattr(function, "__self__", None)
        if isinstance(owner, torch.Generator) and name in OF_GENERATORS | BY_COPIES:
            passes = passes_states(frame.f_code) or seeds(frame, function)
            if not (passes or is_own(frame.f_code.co_filename)):
                self._note(frame, f"calls {name} of a random number generator")
            return
        if name in _SETTINGS and is_asked_by_user(frame):
            self._note(frame, f"calls {name}, of a setting that no replay compares")
            return
        if not is_imported(frame):
            self._called(frame, function)
        if is_repeatable(function) or acts_for_library(frame) or is_imported(frame):
            return
        self._note(frame, f"calls {name or function!r}, which a replay cannot repeat")

    def _note(self, frame: types.FrameType, what: str) -> None:
        where = user_line(frame)
        self.problem = f"it {what} ({where})" if where else f"it {what}"


class Unseen:
    """Looks away from the recorder and from operators, which each replay runs as they are."""

    def __enter__(self) -> None:
        self._profile: Any = sys.getprofile()
        if callable(self._profile):
            sys.setprofile(None)

    def __exit__(self, *_: object) -> None:
        if callable(self._profile):
            sys.setprofile(self._profile)
