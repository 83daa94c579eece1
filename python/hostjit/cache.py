# SPDX-License-Identifier: Apache-2.0
"""The object cache: compiled code on disk, for later processes."""

from __future__ import annotations

from typing import TypedDict, cast

from hostjit import _C

__all__ = ["CacheReport", "report"]


class CacheReport(TypedDict):
    """What the object cache did in this process.

    directory: where it is; "" while it is off.
    hits: programs whose code was there.
    misses: programs that were compiled.
    rejected: of the misses, entries that were damaged or not this user's alone.
    stored: entries written.
    evicted: entries removed because the cache was full.
    problem: the last reason why something could not be read or kept, or "".
    """

    directory: str
    hits: int
    misses: int
    rejected: int
    stored: int
    evicted: int
    problem: str


def report() -> CacheReport:
    """Return what the object cache did in this process.

    Example:
        hostjit.cache.report()["hits"]
    """
    return cast(CacheReport, _C.object_cache_report())
