# SPDX-License-Identifier: Apache-2.0
"""Operators that only check what others computed, in traces of AOTAutograd."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch._higher_order_ops import effects
from torch._library.effects import EffectType

__all__ = ["checks_kept"]

_CHECK = "aten::_linalg_check_errors"


@contextlib.contextmanager
def checks_kept() -> Iterator[None]:
    """Have AOTAutograd keep the check of a factorization, which has no result.

    It keeps what is registered to have effects. Torch 2.11 does not register the check: an error
    would go unseen.
    """
    if effects._get_effect(_CHECK) is not None:
        yield
        return
    registered = effects._register_effectful_op(_CHECK, EffectType.ORDERED)
    try:
        yield
    finally:
        registered.destroy()
