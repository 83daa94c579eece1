# SPDX-License-Identifier: Apache-2.0
"""What a capture leaves open: its program serves any value of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Set

from hostjit.capturing.by_fields import NONE_BY_FIELDS, ByFields
from hostjit.capturing.dynamic_dims import DynamicDims
from hostjit.capturing.numbers.item_reads import ItemReads
from hostjit.capturing.numbers.open_numbers import NumberPlace
from hostjit.capturing.outside_sizes import OutsideSizes

__all__ = ["Opened"]


@dataclasses.dataclass(frozen=True)
class Opened:
    """What to leave open in a capture, where it can be; by default nothing.

    Attributes:
        dims: dims of the arguments' tensors, by tensor leaf; `environment` of the captured program
            tells what was assumed about them. A dim of size 0 or 1 is taken to stay so.
        numbers: the same for numbers among the leaves of the arguments, by position
            (`open_numbers`).
        outside: the same for numbers elsewhere, by Dynamo's names. Those in structures leave these
            open, too: another call may find others of the same classes.
        equal: groups of those elsewhere that have always had the same value, by name.
        classes: those of which each call may bring other objects, with the same fields.
        makes_floats: Python computes all floats that operators take.
        reads: of the callable; leaves numbers open that it reads from tensors. None for closed.
        sizes: of the callable; leaves sizes of tensors elsewhere open that vary. None for closed.
    """

    dims: DynamicDims = dataclasses.field(default_factory=dict)
    numbers: Set[int] = frozenset()
    outside: Mapping[str, NumberPlace] = dataclasses.field(default_factory=dict)
    equal: Mapping[str, Hashable] = dataclasses.field(default_factory=dict)
    classes: ByFields = NONE_BY_FIELDS
    makes_floats: bool = False
    reads: ItemReads | None = None
    sizes: OutsideSizes | None = None

    @property
    def varies(self) -> bool:
        """Whether sizes or numbers of the arguments are left open."""
        return bool(self.dims or self.numbers)
