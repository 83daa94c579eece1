# SPDX-License-Identifier: Apache-2.0
"""Notices what differs between the calls of one function, call after call."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Set
from typing import Any

import torch

from hostjit.capturing.arguments import tensor_leaves
from hostjit.capturing.numbers.open_numbers import number_leaves

__all__ = ["Varying"]


# With so many sizes, each of which one call has had, all calls may have others.
_MOST_ONCE = 64


class Varying:
    """Counts the values of each float among the arguments, and the sizes of the tensors.

    A float that had three values will have others: a gain, a time, a reward. Ints are counted too
    where that is asked for; without, they are taken for indices and modes, of which there are few.

    Attributes:
        last: the name of the number that differed too often, as of `number_leaves`; "" for none.
        has_new_sizes: the last call had other sizes than all before it. Such a one is not to be
            recorded: a window that fills has each number of items once, but for the last.
    """

    def __init__(self, most: int, most_sizes: int, *, floats_only: bool) -> None:
        self._most = most
        self._most_sizes = most_sizes
        self._floats_only = floats_only
        self._values: dict[str, set[str]] = {}
        self._sizes: collections.Counter[tuple[torch.Size, ...]] = collections.Counter()
        self.has_new_sizes = False
        self.last = ""

    def note(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], opened: Set[str] = frozenset()
    ) -> str:
        """Look at a call; returns what differs more often than may be, "" for nothing.

        `opened`: names of numbers that may be any.
        """
        for name, value in number_leaves(args, kwargs):
            if name in opened:
                continue
            if isinstance(value, float) or not self._floats_only:
                seen = self._values.setdefault(name, set())
                seen.add(repr(value))
                if len(seen) > self._most:
                    self.last = name
                    return f"the {type(value).__name__} {_readable(name)}"
        if not self._floats_only:
            sizes = tuple(leaf.shape for leaf in tensor_leaves(args, kwargs))
            self._sizes[sizes] += 1
            self.has_new_sizes = self._sizes[sizes] == 1 < len(self._sizes)
            again = sum(count > 1 for count in self._sizes.values())
            if again > self._most_sizes or len(self._sizes) - again > _MOST_ONCE:
                return "the sizes of tensors"
        return ""


def _readable(name: str) -> str:
    return name.removeprefix("L['").replace("']", "", 1)
