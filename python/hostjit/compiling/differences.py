# SPDX-License-Identifier: Apache-2.0
"""In what the calls of one callable differ, for what is said of too many programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from hostjit.capturing.arguments import tensor_leaves
from hostjit.capturing.numbers.open_numbers import number_leaves
from hostjit.capturing.tensors import looking_at_tensors

__all__ = ["Differences"]


class Differences:
    """Remembers in what the calls of one callable that had no program differ from the first."""

    def __init__(self) -> None:
        self._first: tuple[list[torch.Size], dict[str, Any]] | None = None
        self._sizes_differ = False
        self._numbers: set[str] = set()

    @looking_at_tensors
    def note(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Look at a call."""
        sizes = [leaf.shape for leaf in tensor_leaves(args, kwargs)]
        numbers = dict(number_leaves(args, kwargs))
        if self._first is None:
            self._first = sizes, numbers
        first_sizes, first_numbers = self._first
        self._sizes_differ |= sizes != first_sizes
        self._numbers |= {
            name.removeprefix("L['").replace("']", "", 1)
            for name, value in numbers.items()
            if name in first_numbers and first_numbers[name] != value
        }

    def advice(self) -> str:
        """Say what would make for fewer programs."""
        if self._sizes_differ:
            return "Pad the inputs to fewer shapes"
        if self._numbers:
            names = ", ".join(sorted(self._numbers))
            return f"Numbers differ ({names}): pass them as tensors"
        return (
            "Sizes and numbers of the arguments don't differ, but Python values that it reads may, "
            "such as an attribute or a counter: keep them in tensors"
        )
