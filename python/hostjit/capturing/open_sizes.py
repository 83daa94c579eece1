# SPDX-License-Identifier: Apache-2.0
"""Questions about sizes that may be open: none of them ties the program to an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

__all__ = ["all_equal", "is_dense", "is_open", "known", "some", "typical"]


def is_open(size: Any) -> bool:
    """Whether a size is not the same in all calls of the program."""
    return isinstance(size, torch.SymInt)


def known(condition: Any) -> bool:
    """Whether a condition on sizes holds for all sizes that the program is for."""
    return bool(statically_known_true(condition))


def some(sizes: Iterable[Any]) -> bool:
    """Whether it is known that none of the sizes is zero."""
    return all(known(size != 0) for size in sizes)


def all_equal(left: Iterable[Any], right: Iterable[Any]) -> bool:
    """Whether it is known that two shapes are the same."""
    left, right = tuple(left), tuple(right)
    return len(left) == len(right) and all(
        known(mine == other) for mine, other in zip(left, right, strict=True)
    )


def typical(size: Any) -> int:
    """A size as it was at capture, for choices that only speed depends on."""
    return int(size.node.hint) if is_open(size) else int(size)


def is_dense(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether it is known that no two elements share memory, and none lies between them."""
    pairs = zip(shape, strides, strict=True)
    dims = [(size, step) for size, step in pairs if not known(size == 1)]
    expected: Any = 1
    while dims:
        position = next((i for i, (_, step) in enumerate(dims) if known(step == expected)), None)
        if position is None:
            return False
        expected = expected * dims.pop(position)[0]
    return True
