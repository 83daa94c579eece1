# SPDX-License-Identifier: Apache-2.0
"""Less Python around a compiled graph: what Dynamo writes into the code that calls it."""

from __future__ import annotations

from typing import Any

import torch._dynamo
from torch._dynamo.eval_frame import skip_code
from torch._guards import TracingContext

__all__ = ["leave_out_profiler_events"]

_SETTING = "record_runtime_overhead"
_left_out = False


def leave_out_profiler_events() -> None:
    """Have Dynamo write the code around the graph being compiled without profiler events.

    They are two context managers in every call, an eighth of the time of a small model, and show
    as "Pregraph bytecode" in a profile. Dynamo reads the setting once the backend is done; when it
    is through with the function, the setting is what it was.
    """
    global _left_out
    config: Any = torch._dynamo.config
    handler = getattr(torch._dynamo, "callback_handler", None)
    if handler is None or not getattr(config, _SETTING, False) or TracingContext.try_get() is None:
        return
    if _restore not in handler.end_callbacks:  # torch.compiler.reset() forgets it
        handler.register_end_callback(_restore)
    setattr(config, _SETTING, False)
    _left_out = True


def _restore(_: object) -> None:
    global _left_out
    if _left_out:
        setattr(torch._dynamo.config, _SETTING, True)
        _left_out = False


# AOTAutograd compiles a backward pass when it first runs. Where that is within a frame that Dynamo
# compiled, Dynamo looks at every frame that begins, this one too, and to compile it would wait for
# the lock under which callbacks run.
skip_code(_restore.__code__)
