# SPDX-License-Identifier: Apache-2.0
"""Profilers written in C, whose place in a thread a recording takes for the time of a call.

`sys.getprofile` returns such a profiler as an object that `sys.setprofile` can't bring back.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["active_profiler", "is_resumable"]


def active_profiler() -> Any:
    """Return the profiler of C code of this thread; None if there is none."""
    profiler = sys.getprofile()
    return None if callable(profiler) else profiler


def is_resumable(profiler: Any) -> bool:
    """Tell whether `profiler.enable()` brings it back: that of cProfile, before Python 3.12."""
    import cProfile

    return isinstance(profiler, cProfile.Profile)
