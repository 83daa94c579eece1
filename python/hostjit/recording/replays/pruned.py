# SPDX-License-Identifier: Apache-2.0
"""The part of a recorded program that runs once: its program, what it reads, and its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.guards.watches import MISSING

__all__ = ["Pruned"]


class Pruned:
    """The part of a program that runs once.

    Args:
        program: computes the values.
        sources: what it reads.
        operators: how many it has.
        values: what it computes of the sources as they are; None: not computed yet.

    Attributes:
        values: what it computed last; inputs of the rest.
    """

    def __init__(
        self,
        program: _C.CompiledProgram,
        sources: Sequence[torch.Tensor],
        operators: int,
        values: Sequence[torch.Tensor] | None = None,
    ) -> None:
        self.program = program
        self.sources = list(sources)
        self.operators = operators
        self.values = list(values or ())
        self._is_computed = values is not None
        self._versions = self._seen()

    def compute(self) -> None:
        """Compute the values anew, into new memory."""
        self._versions = self._seen()
        with torch.no_grad():
            self.values = self.program.run(self.sources)
        self._is_computed = True

    def is_current(self) -> bool:
        """Tell whether nobody has written to what it reads."""
        return self._is_computed and self._versions == self._seen()

    def shares_memory(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor is in the memory of what it reads."""
        memory = tensor.untyped_storage()._cdata
        return any(source.untyped_storage()._cdata == memory for source in self.sources)

    def watches(self) -> list[tuple[Any, ...]]:
        """Return what tells the call path that it is."""
        watched: list[tuple[Any, ...]] = [("unwritten", tensor) for tensor in self.sources]
        if not self._is_computed:
            watched.append(("dict_items", vars(self), self, ("_is_computed",), (True,), MISSING))
        return watched

    def _seen(self) -> list[tuple[int, int]]:
        return [(tensor._version, tensor.data_ptr()) for tensor in self.sources]
