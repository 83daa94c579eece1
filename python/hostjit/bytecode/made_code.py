# SPDX-License-Identifier: Apache-2.0
"""Code that asks who decides: what it was made of, and where something is in that."""

from __future__ import annotations

import dis
import types

from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["is_of_choice", "note_made", "note_way", "origin_of", "written_as"]

# Code that was made of other code, by that very object: what is equal to it may go earlier. What it
# was made of, and whether it is that of a statement.
_origins = WeakIdKeyDictionary()


def note_made(code: types.CodeType, origin: types.CodeType) -> None:
    """Note that code was made of other code."""
    _origins[code] = origin, False


def note_way(code: types.CodeType, origin: types.CodeType) -> None:
    """Note that code is what a statement of other code does."""
    _origins[code] = origin, True


def origin_of(code: types.CodeType) -> types.CodeType:
    """Return the code of which other code was made; the code itself where it is as written."""
    origin: types.CodeType = _origins.get(code, (code,))[0]
    return origin


def is_of_choice(code: types.CodeType) -> bool:
    """Tell whether code is that of a statement of other code."""
    return bool(_origins.get(code, (code, False))[1])


def written_as(code: types.CodeType, offset: int) -> tuple[types.CodeType, list[int]]:
    """Return the code of which `with_choices` has made other code, and where something is in it.

    The code itself and the offset, for other code. `offset`: in bytes, as in `f_lasti`.
    """
    origin = origin_of(code)
    if origin is code:
        return code, [offset]
    found = next(each for each in _reversed(code) if each.offset <= offset)
    if found.positions is None or None in found.positions:
        return origin, []
    name, place = found.opname, found.positions
    same = [each for each in dis.get_instructions(origin) if each.positions == place]
    return origin, [each.offset for each in same if each.opname == name]


def _reversed(code: types.CodeType) -> list[dis.Instruction]:
    return [*dis.get_instructions(code)][::-1]
