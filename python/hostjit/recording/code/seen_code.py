# SPDX-License-Identifier: Apache-2.0
"""Which Python code runs while a call is recorded, and what it calls that no replay repeats."""

from __future__ import annotations

import dis
import functools
import itertools
import os
import random
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Set
from typing import Any

import torch

import hostjit
from hostjit.recording import numpy_types
from hostjit.recording.code.group_reads import GROUPS, reads_numbers
from hostjit.recording.running.generator_states import passes_states, seeds_default
from hostjit.recording.triton import types as triton_types

__all__ = [
    "OF_GENERATORS",
    "RANDOM_SOURCES",
    "SeenCode",
    "acts_for_library",
    "asks_by_variable",
    "formats",
    "globals_of",
    "imports_of",
    "is_asked_by_user",
    "is_library",
    "is_of_standard_library",
    "is_repeatable",
    "names_of",
    "patterns_of",
    "reads_groups",
    "runs_custom_function",
    "sets_by_variable",
    "user_line",
]

_HOSTJIT = os.path.dirname(os.path.abspath(hostjit.__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_LAUNCHED = tuple(os.path.join(_HOSTJIT, name) for name in ("launching", "optimizers"))
_LIBRARIES = (_TORCH, _HOSTJIT, *numpy_types.FOLDERS, *triton_types.FOLDERS, "<frozen")
_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = tuple(
    {path + os.sep for path in (sysconfig.get_paths()[n] for n in ("purelib", "platlib"))}
)
# Modules of C code that gives the same for the same arguments, and does what others do not see.
_REPEATABLE = frozenset(
    {
        *("builtins", "torch", "numpy", "hostjit", "math", "cmath", "operator", "itertools"),
        *("collections", "functools", "sre", "re", "struct", "typing", "types", "enum", "copy"),
        *("weakref", "weakrefset", "abc", "string", "bisect", "heapq", "thread", "threading"),
        *("contextvars", "contextlib", "gc", "sys", "warnings", "inspect", "json", "decimal"),
        *("fractions", "statistics", "datetime", "dataclasses", "codecs", "opcode", "imp"),
    }
)
_IMPURE_BUILTINS = frozenset(
    {"print", "input", "open", "exec", "eval", "compile", "breakpoint", "__import__"}
)
_THREADS = frozenset(
    {"start_new_thread", "start_joinable_thread", "get_ident", "get_native_id", "locked"}
)
# Methods that read or set the state of a `torch.Generator`.
OF_GENERATORS = frozenset(
    {
        *("manual_seed", "seed", "initial_seed", "set_state", "get_state", "set_offset"),
        *("get_offset", "clone_state", "graphsafe_set_state", "graphsafe_get_state"),
    }
)
# Objects that give another number each time, which is not seen otherwise.
RANDOM_SOURCES: tuple[type, ...] = (random.Random, *numpy_types.RANDOM_SOURCES)
# Of dates and times: what asks the clock or for the time zone.
_NOW = frozenset({"now", "today", "utcnow", "fromtimestamp", "astimezone", "timestamp"})
# State of PyTorch and of the interpreter that calls can't be compared by.
_SETTINGS = frozenset(
    {
        *("_get_fp32_precision_getter", "_is_multithreading_enabled", "getcontext", "_getframe"),
        *("getrefcount", "getallocatedblocks", "isenabled", "get_threshold", "get_count"),
        *("get_objects", "get_referrers", "getprofile", "gettrace", "exc_info", "exception"),
    }
)
# Names in texts: of `operator.attrgetter("a.b")`, and in the fields of formats.
_DOTTED, _FIELD, _NAME = map(re.compile, (r"[^\W\d][\w.]*", r"\{([^{}]*)\}", r"[^\W\d]\w*"))
_OF_MODULES = os.path.join(_TORCH, "nn") + os.sep
_OF_SETTINGS = (
    *(os.path.join(_TORCH, name) + os.sep for name in ("backends", "sparse")),
    *(os.path.join(_TORCH, name) for name in ("__init__.py", "utils/deterministic.py")),
)


class SeenCode:
    """Collects the code that runs in this thread, while it is entered.

    Attributes:
        codes: the code that ran.
        problem: the first call that a replay cannot repeat, in words, with its line; "" if none.
    """

    def __init__(
        self,
        visit: Callable[[types.CodeType, dict[str, Any]], None],
        asked: Callable[[types.FrameType], str] = lambda frame: "",
        called: Callable[[types.FrameType, Any], object] = lambda frame, function: None,
        passed: Callable[[types.FrameType, Any], object] = lambda frame, returned: None,
    ) -> None:
        """`visit` is called before code runs for the first time, with its globals.

        `asked` is called before each run of code of the standard library, with its frame; what it
        returns is a problem. `called` is called before Python code calls a function of C code.
        `passed` is called where code has read, set or seeded the state of random numbers.
        """
        self.problem = ""
        self._visit = visit
        self._asked = asked
        self._called = called
        self._passed = passed
        self.codes: set[types.CodeType] = set()
        self._before: Any = None

    def __enter__(self) -> SeenCode:
        self._before = sys.getprofile()
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before if callable(self._before) else None)

    def _event(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code not in self.codes and not is_imported(frame):
                self.codes.add(code)
                problem = triton_types.problem_of(code)
                if problem and not self.problem:
                    self._note(frame, problem)
                if not _is_own(code.co_filename) and not triton_types.is_tritons(code):
                    self._visit(code, frame.f_globals)
            what = self._asked(frame)
            if what and not self.problem and not acts_for_library(frame.f_back):
                self._note(frame, what)
        elif event == "c_call" and not self.problem:
            self._look_at(frame, argument)
        elif not self.problem and (
            (event == "return" and passes_states(frame.f_code))
            or (event == "c_return" and seeds_default(frame, argument))
        ):
            self._passed(frame, argument)
        elif event == "c_exception" and passes_states(frame.f_code) and not self.problem:
            self._note(frame, "sets a state that its generator does not take")

    def _look_at(self, frame: types.FrameType, function: Any) -> None:
        name = getattr(function, "__name__", "")
        owner = getattr(function, "__self__", None)
        if isinstance(owner, torch.Generator) and name in OF_GENERATORS:
            passes = passes_states(frame.f_code) or seeds_default(frame, function)
            if not (passes or _is_own(frame.f_code.co_filename)):
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


def is_repeatable(function: Any) -> bool:
    """Tell whether C code gives the same for the same, without effects."""
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    module = getattr(function, "__module__", None)
    if not isinstance(module, str):
        kind = getattr(function, "__objclass__", type(owner))
        module = owner.__name__ if isinstance(owner, types.ModuleType) else kind.__module__
    if isinstance(owner, RANDOM_SOURCES):
        return False
    if name in OF_GENERATORS and torch.Generator in (
        getattr(function, "__objclass__", None),
        type(owner),
    ):
        return False
    if (
        name in _NOW
        and (owner if isinstance(owner, type) else type(owner)).__module__ == "datetime"
    ):
        return False
    if name in _THREADS:
        return False
    if module == "builtins":
        return name not in _IMPURE_BUILTINS
    return module.partition(".")[0].strip("_") in _REPEATABLE and "numpy.random" not in module


def runs_custom_function(codes: Set[types.CodeType]) -> bool:
    """Tell whether the code that ran is that of a `torch.autograd.Function`."""
    apply: Any = torch.autograd.Function.apply
    if hasattr(apply, "__func__"):  # up to torch 2.13; C code calls the function itself later
        return apply.__func__.__code__ in codes
    found = [torch.autograd.Function]
    for kind in found:
        found += kind.__subclasses__()
    return any(getattr(kind.forward, "__code__", None) in codes for kind in found)


def is_asked_by_user(frame: types.FrameType | None) -> bool:
    """Tell whether users' code asks, directly or by what PyTorch has to ask for settings."""
    while frame is not None and frame.f_code.co_filename.startswith(_OF_SETTINGS):
        frame = frame.f_back
    return frame is not None and not is_library(frame.f_code.co_filename)


def _is_own(filename: str) -> bool:
    return filename.startswith(_HOSTJIT) and not filename.startswith(_LAUNCHED)


def is_imported(frame: types.FrameType | None) -> bool:
    """Tell whether an import is under way, which happens once."""
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename.startswith("<frozen importlib"):
            return True
        if _is_own(filename):
            return False
        frame = frame.f_back
    return False


def acts_for_library(frame: types.FrameType | None) -> bool:
    """Tell whether torch, hostjit or Triton called, directly or through the standard library."""
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename.startswith((_TORCH, _HOSTJIT, *triton_types.FOLDERS)):
            return True
        standard = filename.startswith((_STANDARD, "<frozen"))
        if not standard or filename.startswith(_PACKAGES):
            return False
        frame = frame.f_back
    return True


def is_library(filename: str) -> bool:
    """Tell whether a file is of torch, hostjit, NumPy, Triton or the standard library.

    What their code reads of their own globals is taken to stay.
    """
    return filename.startswith(_LIBRARIES) or is_of_standard_library(filename)


def is_of_standard_library(filename: str) -> bool:
    """Tell whether a file is of the standard library."""
    return filename.startswith(_STANDARD) and not filename.startswith(_PACKAGES)


def user_line(frame: types.FrameType | None = None) -> str:
    """Return "file:line" of the innermost frame that is no library's; "" if there is none."""
    frame = frame or sys._getframe(1)
    found: types.FrameType | None = frame
    while found is not None and is_library(found.f_code.co_filename):
        found = found.f_back
    return f"{found.f_code.co_filename}:{found.f_lineno}" if found is not None else ""


@functools.cache
def names_of(code: types.CodeType) -> frozenset[str]:
    """Return the names by which code may reach attributes."""
    texts: set[str] = set()
    pending = list(code.co_consts)
    while pending:
        constant = pending.pop()
        if isinstance(constant, (tuple, frozenset)):
            pending.extend(constant)  # keywords, and attributes in patterns
        elif isinstance(constant, str):
            dotted = constant if _DOTTED.fullmatch(constant) else ""
            texts.update(dotted.split("."), *map(_NAME.findall, _FIELD.findall(constant)))
    own = {code.co_name} if code.co_name[:2] == "__" else ()
    return frozenset({*code.co_names, *texts, *own}) - {""}


@functools.cache
def asks_by_variable(code: types.CodeType) -> bool:
    """Tell whether code calls `hasattr` with a name that is no constant."""
    if "hasattr" not in code.co_names:
        return False
    found = [*dis.get_instructions(code)]
    asked = sum(x.opname in ("LOAD_GLOBAL", "LOAD_NAME") and x.argval == "hasattr" for x in found)
    constant = sum(
        name.opname == "LOAD_CONST" and call.opname in ("PRECALL", "CALL") and call.arg == 2
        for name, call in itertools.pairwise(found)
    )
    return bool(asked > constant)


def sets_by_variable(code: types.CodeType) -> bool:
    """Tell whether code is of torch.nn and assigns attributes whose names it is given."""
    names = ("setattr", "delattr")
    return code.co_filename.startswith(_OF_MODULES) and not set(names).isdisjoint(code.co_names)


def reads_groups(code: types.CodeType) -> bool:
    """Tell whether code may look at numbers in the groups of an optimizer."""
    if GROUPS not in names_of(code) or code.co_filename.startswith(_HOSTJIT):
        return False
    return reads_numbers(code)


@functools.cache
def formats(code: types.CodeType) -> bool:
    """Tell whether code formats numbers in a way that may depend on the locale."""
    if not {"format", "__format__", "strftime"}.isdisjoint(code.co_names):
        return True
    found = [*dis.get_instructions(code)]
    return any(
        x.opname in ("FORMAT_VALUE", "FORMAT_WITH_SPEC")
        and (x.opname != "FORMAT_VALUE" or (x.arg or 0) & 4)
        and not (before.opname == "LOAD_CONST" and str(before.argval)[-1:] != "n")
        for before, x in itertools.pairwise(found)
    )


@functools.cache
def patterns_of(code: types.CodeType) -> frozenset[str]:
    """Return the kinds of patterns that code matches: SEQUENCE, MAPPING and CLASS."""
    kinds = (i.opname for i in dis.get_instructions(code) if i.opname.startswith("MATCH_"))
    return frozenset(kind.removeprefix("MATCH_") for kind in kinds)


@functools.cache
def globals_of(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals that code reads or writes.

    Without those that pytest adds to assertions, `@pytest_ar` and others that no source can have:
    they are read where an assertion fails, and lead to the whole run of the tests.
    """
    wanted = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
    found = (i.argval for i in dis.get_instructions(code) if i.opname in wanted)
    return frozenset(name for name in found if name[0] != "@")


@functools.cache
def imports_of(code: types.CodeType) -> frozenset[tuple[str, int]]:
    """Return the names of modules that code imports when it runs, with their levels."""
    found = [*dis.get_instructions(code)]
    return frozenset(
        (i.argval, found[index - 2].argval)
        for index, i in enumerate(found)
        if i.opname == "IMPORT_NAME"
    )
