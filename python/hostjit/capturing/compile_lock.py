# SPDX-License-Identifier: Apache-2.0
"""One compilation at a time, of hostjit's and of Dynamo's.

While one is under way, functions, settings and tables of PyTorch are others. What another thread
traced meanwhile, for whatever backend, would be made with them.
"""

from __future__ import annotations

import contextlib
from typing import Any

from torch._dynamo import convert_frame

__all__ = ["compile_lock"]

# Dynamo's own, so that no thread can wait for one of two locks while it holds the other. A thread
# that holds it may take it again.
compile_lock: contextlib.AbstractContextManager[Any] = convert_frame.compile_lock
