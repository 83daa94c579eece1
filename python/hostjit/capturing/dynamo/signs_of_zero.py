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
        if type(value) is float and value == 0:
            sign = math.copysign(1.0, value)
            has_sign = functools.partial(_has_sign, sign)
            code = [f"math.copysign(1.0, {self.arg_ref(guard)}) == {sign}"]
            self.get_guard_manager(guard).add_lambda_guard(has_sign, code, guard.user_stack)

    with replaced_attribute(kind, "EQUALS_MATCH", equals_match):
        yield


def _has_sign(sign: float, value: float) -> bool:
    return math.copysign(1.0, value) == sign
