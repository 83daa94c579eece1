# SPDX-License-Identifier: Apache-2.0
"""How a captured function answers calls that bind Dims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hostjit import _C
from hostjit.compiling.compilation import Compilation

if TYPE_CHECKING:
    from hostjit.recording.recordings import Recordings

__all__ = ["CompilationForDims"]


class CompilationForDims(Compilation):
    """Compiles the calls of a captured function that bind Dims; it speaks for that."""

    _has_parts = False

    def __init__(self, recordings: Recordings) -> None:
        super().__init__(
            recordings.target,
            recordings.runtime,
            recordings.fallback,
            recordings.reuse_outputs,
            choices=recordings.choices,
        )
        self._said = recordings._said
        self._static_reasons = recordings._static_reasons

    @property
    def latest(self) -> _C.CompiledProgram | None:
        """The program that was compiled last."""
        return self._latest
