# SPDX-License-Identifier: Apache-2.0
"""The errors of a call that is not like the recorded ones, and of one that no replay repeats."""

from __future__ import annotations

from hostjit import _C
from hostjit.capturing.errors import CaptureError, CaptureFailure

__all__ = ["MismatchError", "refusal_of"]


class MismatchError(_C.Error):
    """A call differs from what `hostjit.capture(..., on_mismatch="raise")` recorded."""


def refusal_of(what: str) -> CaptureError:
    """Return the error that says why a call is not replayed."""
    return CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, what)
