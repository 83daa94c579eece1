# SPDX-License-Identifier: Apache-2.0
"""Functions of `torch.compile` that are called while something is recorded: they run as they are.

PyTorch leaves their frames alone in a dispatch mode, but raises where one was to be compiled whole,
as `torch.cond` and the like ask for by themselves.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._C._dynamo.eval_frame import get_eval_frame_callback
from torch._dynamo import eval_frame
from torch._dynamo.decorators import set_stance

__all__ = ["compiled_regions_run_eagerly"]

# The stance is one for all threads: the first recording under way takes it, the last gives it back.
_lock = threading.Lock()
_count = 0
_taken: Any = None


@contextlib.contextmanager
def compiled_regions_run_eagerly() -> Iterator[None]:
    """Have Dynamo compile nothing meanwhile; a stance that the user chose is left alone."""
    global _count, _taken
    with _lock:
        _count += 1
        is_free = not get_eval_frame_callback() and eval_frame._stance.stance == "default"
        if _taken is None and is_free:
            _taken = set_stance("force_eager")
    try:
        yield
    finally:
        with _lock:
            _count -= 1
            if _count == 0 and _taken is not None:
                if eval_frame._stance is _taken.stance:
                    _taken.__exit__(None, None, None)
                _taken = None
