# SPDX-License-Identifier: Apache-2.0
"""What callers choose, as one object: for those that compile on behalf of others."""

from __future__ import annotations

import dataclasses

from hostjit.compiling.code_choices import CodeChoices

__all__ = ["Options"]


@dataclasses.dataclass(frozen=True)
class Options:
    """The keywords of `hostjit.compile`, with its defaults."""

    runtime: str | None = None
    fallback: bool = True
    reuse_outputs: bool = False
    graphs: str | None = None
    streams: int | None = None
    kernels: str = "hostjit"

    def choices(self) -> CodeChoices:
        """Return those about code; raises hostjit.Error for what is none."""
        return CodeChoices(self.graphs, self.streams, self.kernels)
