# SPDX-License-Identifier: Apache-2.0
"""One compilation at a time, of hostjit's and of Dynamo's.

While one is under way, functions, settings and tables of PyTorch are others. What another thread
traced meanwhile, for whatever backend, would be made with them.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from torch._dynamo import convert_frame

__all__ = ["compile_lock", "is_left_locked"]

# Dynamo's own, so that no thread can wait for one of two locks while it holds the other. A thread
# that holds it may take it again.
compile_lock: Any = convert_frame.compile_lock
_left_locked = threading.Event()


def is_left_locked() -> bool:
    """Tell whether another thread was compiling when this process was forked.

    That thread is not here to end it. Nothing can be compiled any more, calls may be made eagerly.
    """
    return _left_locked.is_set()


def _look() -> None:
    if compile_lock.acquire(blocking=False):
        compile_lock.release()
    else:
        _left_locked.set()


os.register_at_fork(after_in_child=_look)
