# SPDX-License-Identifier: Apache-2.0
"""Subjects with faults, to try the runner on."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch

from conformance.subjects import Subject


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Crash on int64, hang on bool, answer wrongly for bfloat16."""

    def run(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.dtype is torch.int64:
            os.kill(os.getpid(), signal.SIGSEGV)
        if x.dtype is torch.bool:
            time.sleep(600)
        result = function(x, *args, **kwargs)
        return result.clone() if x.dtype is torch.bfloat16 else result

    return run


FAULTY = Subject(_compile, (("run", contextlib.nullcontext),))
