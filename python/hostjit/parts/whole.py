# SPDX-License-Identifier: Apache-2.0
"""A function whose calls run in parts, as its parts know it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from hostjit.compiling.numbers_outside import NumbersOutside
from hostjit.compiling.options import Options

if TYPE_CHECKING:
    from hostjit.recording.reach.attributes import Attribute

__all__ = ["Whole"]


@dataclasses.dataclass(frozen=True)
class Whole:
    """What a function and its parts have in common.

    Attributes:
        name: of the function. What parts say, they say of it.
        said: what has been said.
        options: how programs are compiled.
        numbers_outside: what recordings of it found.
        replaced: attributes that calls replace, as recordings of it found.
        record: has its calls recorded from the next one on; returns whether they will be. With
            `passes_gave_up=True` also those with loops whose passes read values.
    """

    name: str
    said: set[str]
    options: Options
    numbers_outside: NumbersOutside = dataclasses.field(default_factory=NumbersOutside)
    replaced: list[Attribute] = dataclasses.field(default_factory=list)
    record: Callable[..., bool] = lambda **_: False
