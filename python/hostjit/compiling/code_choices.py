# SPDX-License-Identifier: Apache-2.0
"""What a caller of `hostjit.compile` chooses about the code of programs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from hostjit import _C
from hostjit.knobs import knobs

__all__ = ["CodeChoices"]

_GRAPHS = {
    "auto": {"enable": "cuda_graphs", "disable": "cuda_graphs_always"},
    "on": {"enable": "cuda_graphs, cuda_graphs_always"},
    "off": {"disable": "cuda_graphs, cuda_graphs_always"},
}


@dataclasses.dataclass(frozen=True)
class CodeChoices:
    """The keywords `graphs`, `streams` and `kernels` of `hostjit.compile`; None: as the knobs say.

    Raises hostjit.Error for others.
    """

    graphs: str | None = None
    streams: int | None = None
    kernels: str = "hostjit"

    def __post_init__(self) -> None:
        if self.graphs is not None and self.graphs not in _GRAPHS:
            raise _C.Error(
                f"unknown choice of graphs '{self.graphs}', expected 'auto', 'on' or 'off'"
            )
        is_count = isinstance(self.streams, int) and not isinstance(self.streams, bool)
        if self.streams is not None and not (is_count and self.streams >= 1):
            raise _C.Error(f"'streams' is a number of streams from 1 on, got {self.streams!r}")
        if self.kernels not in ("hostjit", "inductor"):
            raise _C.Error(
                f"unknown choice of kernels '{self.kernels}', expected 'hostjit' or 'inductor'"
            )

    def keywords(self) -> dict[str, Any]:
        """Return them as keywords."""
        return dataclasses.asdict(self)

    @contextlib.contextmanager
    def in_effect(self) -> Iterator[None]:
        """Compile programs as they say."""
        with contextlib.ExitStack() as stack:
            if self.graphs is not None:
                stack.enter_context(knobs(**_GRAPHS[self.graphs]))
            if self.streams is not None:
                spread = f"spread_streams({self.streams})"
                stack.enter_context(
                    knobs(enable=spread) if self.streams > 1 else knobs(disable="spread_streams")
                )
            yield
