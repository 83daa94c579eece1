# SPDX-License-Identifier: Apache-2.0
"""Launches of the user's kernels while a call is traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hostjit.capturing.traced_graph import storage_of

__all__ = ["with_aliases_written"]


def with_aliases_written(args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments of `LAUNCH`, where what is read and shares memory with what is written is too.

    So the kernel gets addresses in the same memory, as in eager mode, and not in a copy.
    """
    number, read, read_at, written, written_at, *rest = args
    storages = {storage_of(tensor) for tensor in written}
    shared = [storage_of(tensor) in storages for tensor in read]
    return (
        number,
        [x for x, is_shared in zip(read, shared, strict=True) if not is_shared],
        [x for x, is_shared in zip(read_at, shared, strict=True) if not is_shared],
        [*written, *(x for x, is_shared in zip(read, shared, strict=True) if is_shared)],
        [*written_at, *(x for x, is_shared in zip(read_at, shared, strict=True) if is_shared)],
        *rest,
    )
