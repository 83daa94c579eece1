# SPDX-License-Identifier: Apache-2.0
"""Imports that no handler of a signal interrupts."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["signals_deferred"]


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Have handlers that Python code has set run behind a `with` block, not inside.

    What one raises, a timeout say, would leave a module half imported, whose operators PyTorch
    then refuses to be told of again. Only the main thread runs handlers; others are not deferred.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers: dict[signal.Signals, Callable[..., Any]] = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            handlers[number] = handler
            signal.signal(number, lambda found, _: came.append(found))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for found in came:
            signal.raise_signal(found)
