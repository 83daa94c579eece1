# SPDX-License-Identifier: Apache-2.0
"""0.0 and -0.0, which are equal and divide to infinities of different signs.

Dynamo's guard on a float that it knows takes either for the other.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.guards import GuardBuilder

from hostjit.replacements import replaced_attribute

__all__ = ["guarding_signs_of_zero"]


@contextlib.contextmanager
def guarding_signs_of_zero() -> Iterator[None]:
    """Have Dynamo guard the sign of floats that are zero, in this thread."""
    owner = threading.get_ident()
    kind: Any = GuardBuilder
    equals = kind.EQUALS_MATCH

    @functools.wraps(equals)
    def equals_match(self: Any, guard: Any, *args: Any, **kwargs: Any) -> None:
        equals(self, guard, *args, **kwargs)
        if threading.get_ident() != owner:
            return
        value = self.get(guard)
        signs = list(_signs(value))
        if signs:
            has_signs = functools.partial(_has_signs, signs)
            code = [f"hostjit: the signs of zeros in {self.arg_ref(guard)} are {signs}"]
            self.get_guard_manager(guard).add_lambda_guard(has_signs, code, guard.user_stack)

    with replaced_attribute(kind, "EQUALS_MATCH", equals_match):
        yield


def _has_signs(signs: list[float], value: Any) -> bool:
    return list(_signs(value)) == signs


def _signs(value: Any) -> Iterator[float]:
    """Yield the signs of floats that are zero, in the order of a constant's items."""
    kind = type(value)
    if kind is float:
        if value == 0:
            yield math.copysign(1.0, value)
    elif kind is complex:
        yield from _signs(value.real)
        yield from _signs(value.imag)
    elif kind in (tuple, list, set, frozenset):
        for item in value:
            yield from _signs(item)
