# SPDX-License-Identifier: Apache-2.0
"""Triton's code and objects, as far as recordings meet them; it is not imported here."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from typing import Any

from hostjit.capturing.instances import is_a

__all__ = ["ATTRIBUTES", "FOLDERS", "is_kernel", "is_tritons", "problem_of"]


def _folders() -> tuple[str, ...]:
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return ()
    folder = os.path.dirname(os.path.abspath(found.origin))
    # A package of the user may have the name.
    is_tritons = os.path.exists(os.path.join(folder, "runtime", "jit.py"))
    return (folder + os.sep,) if is_tritons else ()


FOLDERS = _folders()
_LAUNCH = "launches a Triton kernel past the dispatcher"
_MEASURE = "measures how long something takes"
# What each launch goes through, of which nothing is seen where the launch is recorded; and clocks.
_PROBLEMS = {
    "JITFunction.run": _LAUNCH,
    "InterpretedFunction.run": _LAUNCH,
    "CudaLauncher.__call__": _LAUNCH,
    "CompiledKernel.run": _LAUNCH,
    "CompiledKernel.__getitem__": _LAUNCH,
    "do_bench": _MEASURE,
    "do_bench_cudagraph": _MEASURE,
}
# What a launch goes by of its function, and of a configuration; the rest are caches.
ATTRIBUTES = (
    *("fn", "_src", "debug", "pre_run_hooks", "configs", "values"),
    *("kwargs", "num_warps", "num_ctas", "num_stages", "maxnreg", "pre_hook"),
)


def is_tritons(code: types.CodeType) -> bool:
    """Tell whether code is Triton's own."""
    return code.co_filename.startswith(FOLDERS)


def problem_of(code: types.CodeType) -> str:
    """Say what code of Triton does that no replay repeats; "" for other code."""
    return _PROBLEMS.get(code.co_qualname, "") if is_tritons(code) else ""


def is_kernel(value: Any) -> bool:
    """Tell whether a value is something that Triton launches or calls, or a configuration of it."""
    jit, tuner = (sys.modules.get(f"triton.runtime.{name}") for name in ("jit", "autotuner"))
    if jit is None or tuner is None:
        return False
    return is_a(value, (jit.KernelInterface, jit.JITCallable, tuner.Config))
