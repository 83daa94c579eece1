# SPDX-License-Identifier: Apache-2.0
"""What Dynamo does beside a compiled graph that nobody uses, left out."""

from __future__ import annotations

from typing import Any

import torch._dynamo
from torch._dynamo import guards
from torch._dynamo.eval_frame import skip_code
from torch._guards import TracingContext

__all__ = ["leave_out_measurements"]

_EVENTS = "record_runtime_overhead"
_TIMING = "profile_guard_manager"
# Owner, name and value of what is otherwise now.
_left_out: list[tuple[Any, str, Any]] = []


def leave_out_measurements() -> None:
    """Have Dynamo finish the function that it compiles without profiler events and timed guards.

    Events around the graph are two context managers in every call, an eighth of the time of a small
    model, and show as "Pregraph bytecode" in a profile. The guards are timed for the log, which
    empties the CPU's caches: 17 ms. Dynamo does both once the backend is done; when it is through
    with the function, all is as it was.
    """
    handler = getattr(torch._dynamo, "callback_handler", None)
    if handler is None or _left_out or TracingContext.try_get() is None:
        return
    if _restore not in handler.end_callbacks:  # torch.compiler.reset() forgets it
        handler.register_end_callback(_restore)
    if getattr(torch._dynamo.config, _EVENTS, False):
        _leave_out(torch._dynamo.config, _EVENTS, False)
    if hasattr(guards, _TIMING):
        _leave_out(guards, _TIMING, lambda *_: 0.0)


def _leave_out(owner: Any, name: str, value: Any) -> None:
    _left_out.append((owner, name, getattr(owner, name)))
    setattr(owner, name, value)


def _restore(_: object) -> None:
    while _left_out:
        setattr(*_left_out.pop())


# AOTAutograd compiles a backward pass when it first runs. Where that is within a frame that Dynamo
# compiled, Dynamo looks at every frame that begins, this one too, and to compile it would wait for
# the lock under which callbacks run.
skip_code(_restore.__code__)
