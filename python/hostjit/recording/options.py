# SPDX-License-Identifier: Apache-2.0
"""What `hostjit.capture` is asked for."""

from __future__ import annotations

import dataclasses

__all__ = ["RecordingOptions"]


@dataclasses.dataclass(frozen=True)
class RecordingOptions:
    """The arguments of `hostjit.capture` that it has for itself."""

    prune: bool = False
    warmup: int = 1
    static_inputs: tuple[str, ...] = ()
    on_mismatch: str = "recapture"
    on_read: str = "guard"
