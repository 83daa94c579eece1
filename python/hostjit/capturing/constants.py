# SPDX-License-Identifier: Apache-2.0
"""Values that never change: which they are, and when two of them are the same."""

from __future__ import annotations

import enum
import operator
import types
from typing import Any

import torch

__all__ = ["IMMUTABLE_TYPES", "same_constant"]

# Values that compare by equality; a result may share one instead of making it anew.
IMMUTABLE_TYPES = (
    *(bool, int, float, complex, str, bytes, type(None), type(...)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
    *(slice, range, enum.Enum, type, types.BuiltinFunctionType),
)


def same_constant(a: object, b: object) -> bool:
    """Tell whether two immutable values are the same; NaN is, and 0.0 is not -0.0.

    Nor are ranges and slices with other bounds, though they may be equal.
    """
    kind = type(a)
    if kind is not type(b):
        return False
    if a is b:
        return True
    if kind is float or kind is complex:
        return repr(a) == repr(b)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same_constant, a, b))
    if kind is range or kind is slice:
        ends: Any = operator.attrgetter("start", "stop", "step")
        return all(map(_same_bound, ends(a), ends(b)))
    return bool(a == b)


def _same_bound(a: object, b: object) -> bool:
    return a is b or (type(a) in (int, float) and same_constant(a, b))
