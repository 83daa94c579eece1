# SPDX-License-Identifier: Apache-2.0
"""Keeps PyTorch's log of failures on fake tensors to itself where a capture deals with them."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

__all__ = ["without_log_of_failures"]

_LOGGER = logging.getLogger("torch._subclasses.fake_tensor")
_MESSAGE = "failed while attempting to run meta"


@contextlib.contextmanager
def without_log_of_failures() -> Iterator[None]:
    """Leave out what PyTorch logs, with a traceback, of each exception of this thread.

    Eager raises it too, and says what is wrong without help.
    """
    owner = threading.get_ident()

    def is_for_others(record: logging.LogRecord) -> bool:
        return threading.get_ident() != owner or not str(record.msg).startswith(_MESSAGE)

    _LOGGER.addFilter(is_for_others)
    try:
        yield
    finally:
        _LOGGER.removeFilter(is_for_others)
