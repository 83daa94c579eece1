# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of integer scalars that Python has no operator for; captured with the graph."""

from __future__ import annotations

__all__ = ["truncated_quotient", "truncated_remainder"]


def truncated_quotient(dividend: int, divisor: int) -> int:
    """Divide, towards zero."""
    if (dividend >= 0) == (divisor > 0):
        return abs(dividend) // abs(divisor)
    return -(abs(dividend) // abs(divisor))


def truncated_remainder(dividend: int, divisor: int) -> int:
    """Return what that division leaves: it has the sign of the dividend."""
    rest = abs(dividend) % abs(divisor)
    return rest if dividend >= 0 else -rest
