# SPDX-License-Identifier: Apache-2.0
"""What code says of itself before it runs: its names, and what it does with them."""

from __future__ import annotations

import dataclasses
import dis
import functools
import itertools
import os
import re
import types
from typing import Any

from hostjit.recording.code.group_reads import GROUPS, reads_numbers
from hostjit.recording.code.libraries import (
    HOSTJIT,
    TORCH,
)

__all__ = [
    "ASKING",
    "formats",
    "globals_of",
    "imports_of",
    "name_asked",
    "names_in_texts",
    "names_of",
    "patterns_of",
    "reaches_any",
    "reads_groups",
    "sets_by_variable",
]

# Names in texts: of `operator.attrgetter("a.b")`, and in the fields of formats.
_DOTTED, _FIELD, _NAME = map(re.compile, (r"[^\W\d][\w.]*", r"\{([^{}]*)\}", r"[^\W\d]\w*"))
_NESTED = re.compile(r"\{[^{}]*\{")
# Code that has one of these may reach any attribute.
_FORMATTING = frozenset({"format", "format_map"})
_DYNAMIC = frozenset(
    {
        *("getattr", "setattr", "delattr", "vars", "dir", "globals", "locals", "__dict__"),
        *("__getattribute__", "attrgetter", "methodcaller"),
        *_FORMATTING,
    }
)
ASKING = (getattr, setattr, delattr, hasattr)
"""What reaches an attribute whose name it is given."""
_ASKED_BY = frozenset(function.__name__ for function in ASKING)
_MOST_GIVEN = 3
_OF_MODULES = os.path.join(TORCH, "nn") + os.sep


@functools.cache
def names_of(code: types.CodeType) -> frozenset[str]:
    """Return the names by which code may reach attributes."""
    own = {code.co_name} if code.co_name[:2] == "__" else ()
    return frozenset({*code.co_names, *names_in_texts(code), *own}) - {""}


@functools.cache
def names_in_texts(code: types.CodeType) -> frozenset[str]:
    """Return the names that the texts of code have."""
    texts: set[str] = set()
    pending = list(code.co_consts)
    while pending:
        constant = pending.pop()
        if isinstance(constant, (tuple, frozenset)):
            pending.extend(constant)  # keywords, and attributes in patterns
        elif isinstance(constant, str):
            dotted = constant if _DOTTED.fullmatch(constant) else ""
            fields = [constant] if _NESTED.search(constant) else _FIELD.findall(constant)
            texts.update(dotted.split("."), *map(_NAME.findall, fields))
    return frozenset(texts)


@functools.cache
def reaches_any(code: types.CodeType) -> bool:
    """Tell whether code may reach attributes whose names it does not have.

    `"{0.name}".format(x)` has the name: that of a text which is no constant may be any. What calls
    of `getattr(x, name)` reach, `name_asked` tells when they are made.
    """
    names = _DYNAMIC.intersection(code.co_names)
    if not names:
        return False
    if names - _FORMATTING - _ASKED_BY:
        return True
    found = [*dis.get_instructions(code)]
    loaded = [x for x in found if x.argval in names and x.opname.startswith(("LOAD_", "STORE_"))]
    called = sum(
        x.opname == "LOAD_GLOBAL" and bool((x.arg or 0) & 1)
        for x in loaded
        if x.argval in _ASKED_BY
    )
    texts = sum(
        text.opname == "LOAD_CONST" and x.opname in ("LOAD_METHOD", "LOAD_ATTR")
        for text, x in itertools.pairwise(found)
        if x.argval in _FORMATTING
    )
    return texts + called != len(loaded)


def name_asked(frame: types.FrameType) -> str | None:
    """Return the attribute that code asks for by one of `ASKING`, which it is about to call.

    None where the name is computed there.
    """
    place = _place_of_name(frame.f_code, frame.f_lasti)
    if place is None:
        return None
    variables = frame.f_globals if place.is_global else frame.f_locals
    found = place.name if place.is_constant else variables.get(place.name)
    return found if type(found) is str else None


@dataclasses.dataclass(frozen=True)
class _Place:
    """What code gives to a call: a constant, or what a variable has."""

    name: Any
    is_constant: bool = False
    is_global: bool = False


@functools.lru_cache(maxsize=4096)
def _place_of_name(code: types.CodeType, offset: int) -> _Place | None:
    """Where code that calls one of `ASKING` at an offset has the name."""
    found = [x for x in dis.get_instructions(code) if x.opname != "PRECALL"]
    before = [x for x in found if x.offset <= offset]
    if not before or before[-1].opname != "CALL":
        return None
    call = before.pop()
    given: list[_Place] = []
    for each in reversed(before[-_MOST_GIVEN:]):
        place = _places_loaded(each)
        if not place or each.is_jump_target:
            break
        given[:0] = place
    behind = (call.arg or 0) - 2  # what is given behind the name
    return given[-1 - behind] if 0 <= behind < len(given) else None


def _places_loaded(instruction: dis.Instruction) -> list[_Place]:
    """What an instruction puts on the stack, if it does nothing else."""
    name, value = instruction.opname, instruction.argval
    if name == "LOAD_CONST":
        return [_Place(value, is_constant=True)]
    if name == "LOAD_GLOBAL":
        return [] if (instruction.arg or 0) & 1 else [_Place(value, is_global=True)]
    if name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF"):
        return [_Place(value)]
    return [*map(_Place, value)] if name == "LOAD_FAST_LOAD_FAST" else []


def sets_by_variable(code: types.CodeType) -> bool:
    """Tell whether code is of torch.nn and assigns attributes whose names it is given."""
    names = ("setattr", "delattr")
    return code.co_filename.startswith(_OF_MODULES) and not set(names).isdisjoint(code.co_names)


def reads_groups(code: types.CodeType) -> bool:
    """Tell whether code may look at numbers in the groups of an optimizer."""
    if GROUPS not in names_of(code) or code.co_filename.startswith(HOSTJIT):
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
