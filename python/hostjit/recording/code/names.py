# SPDX-License-Identifier: Apache-2.0
"""What code says of itself before it runs: its names, and what it does with them."""

from __future__ import annotations

import dis
import functools
import itertools
import os
import re
import types

from hostjit.recording.code.group_reads import GROUPS, reads_numbers
from hostjit.recording.code.libraries import (
    HOSTJIT,
    TORCH,
)

__all__ = [
    "asks_by_variable",
    "formats",
    "globals_of",
    "imports_of",
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
_OF_MODULES = os.path.join(TORCH, "nn") + os.sep


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
            fields = [constant] if _NESTED.search(constant) else _FIELD.findall(constant)
            texts.update(dotted.split("."), *map(_NAME.findall, fields))
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


@functools.cache
def reaches_any(code: types.CodeType) -> bool:
    """Tell whether code may reach attributes whose names it does not have.

    `"{0.name}".format(x)` has the name: that of a text which is no constant may be any.
    """
    names = _DYNAMIC.intersection(code.co_names)
    if names - _FORMATTING or not names:
        return bool(names) or asks_by_variable(code)
    found = [*dis.get_instructions(code)]
    texts = sum(
        text.opname == "LOAD_CONST" and x.opname in ("LOAD_METHOD", "LOAD_ATTR")
        for text, x in itertools.pairwise(found)
        if x.argval in _FORMATTING
    )
    used = sum(x.argval in _FORMATTING for x in found if x.opname.startswith(("LOAD_", "STORE_")))
    return texts != used or asks_by_variable(code)


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
