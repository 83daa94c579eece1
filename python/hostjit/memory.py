# SPDX-License-Identifier: Apache-2.0
"""The memory that hostjit keeps for the tensors that compiled functions return."""

from __future__ import annotations

from hostjit import _C

__all__ = ["cached_bytes", "empty_cache", "set_cache_limit"]


def empty_cache() -> None:
    """Free the memory of returned tensors that were released and is kept to be used again.

    Tensors in use are not touched.

    Example:
        del y
        hostjit.empty_cache()
    """
    _C.empty_cache()


def cached_bytes() -> int:
    """Return how many bytes are kept to be used again.

    Example:
        hostjit.cached_bytes() / 2**20
    """
    return _C.cached_bytes()


def set_cache_limit(size: int) -> int:
    """Keep at most `size` bytes of released memory, from now on; the default is 256 MiB.

    Args:
        size: bytes. 0 keeps nothing. An output larger than this is never kept: its memory is new,
            and page-faults, at every call.

    Returns:
        The limit until now.

    Raises:
        ValueError: `size` is negative.

    Example:
        hostjit.set_cache_limit(2**30)
    """
    if size < 0:
        raise ValueError(f"the limit of the cache is {size}, expected 0 or more bytes")
    return _C.set_cache_limit(size)
