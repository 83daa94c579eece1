# SPDX-License-Identifier: Apache-2.0
"""Warnings are errors, but for one that does not concern hostjit."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

__all__ = ["no_warnings"]


@contextlib.contextmanager
def no_warnings() -> Iterator[None]:
    """Make each warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # What Dynamo says of CPython 3.13.0, which later ones of 3.13 repair.
        warnings.filterwarnings("ignore", "Guards may run slower", RuntimeWarning)
        yield
