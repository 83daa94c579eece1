# SPDX-License-Identifier: Apache-2.0
"""The error of a call that is not like the recorded ones."""

from __future__ import annotations

from hostjit import _C

__all__ = ["MismatchError"]


class MismatchError(_C.Error):
    """A call differs from what `hostjit.capture(..., on_mismatch="raise")` recorded."""
