# SPDX-License-Identifier: Apache-2.0
"""Which functions of C code give the same for the same, without effects."""

from __future__ import annotations

import random
import types
from typing import Any

import torch

from hostjit.recording import numpy_types

__all__ = ["BY_COPIES", "OF_GENERATORS", "RANDOM_SOURCES", "is_repeatable"]

# Modules of C code that gives the same for the same arguments, and does what others do not see.
_REPEATABLE = frozenset(
    {
        *("builtins", "torch", "numpy", "hostjit", "math", "cmath", "operator", "itertools"),
        *("collections", "functools", "sre", "re", "struct", "typing", "types", "enum", "copy"),
        *("weakref", "weakrefset", "abc", "string", "bisect", "heapq", "thread", "threading"),
        *("contextvars", "contextlib", "gc", "sys", "warnings", "inspect", "json", "decimal"),
        *("fractions", "statistics", "datetime", "dataclasses", "codecs", "opcode", "imp"),
    }
)
_IMPURE_BUILTINS = frozenset(
    {"print", "input", "open", "exec", "eval", "compile", "breakpoint", "__import__"}
)
_THREADS = frozenset(
    {"start_new_thread", "start_joinable_thread", "get_ident", "get_native_id", "locked"}
)
# Settings of PyTorch's for the whole process, which others go on with.
_SET_FOR_ALL = frozenset(
    {"_set_flush_denormal", "set_flush_denormal", "set_num_threads", "set_num_interop_threads"}
)
# Methods that read or set the state of a `torch.Generator`.
OF_GENERATORS = frozenset(
    {
        *("manual_seed", "seed", "initial_seed", "set_state", "get_state", "set_offset"),
        *("get_offset", "clone_state", "graphsafe_set_state", "graphsafe_get_state"),
    }
)
# Those by which copies are made.
BY_COPIES = frozenset({"__reduce__", "__reduce_ex__", "__setstate__"})
# Objects that give another number each time, which is not seen otherwise.
RANDOM_SOURCES: tuple[type, ...] = (random.Random, *numpy_types.RANDOM_SOURCES)
# Of dates and times: what asks the clock or for the time zone.
_NOW = frozenset({"now", "today", "utcnow", "fromtimestamp", "astimezone", "timestamp"})


def is_repeatable(function: Any) -> bool:
    """Tell whether C code gives the same for the same, without effects."""
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    module = getattr(function, "__module__", None)
    if not isinstance(module, str):
        kind = getattr(function, "__objclass__", type(owner))
        module = owner.__name__ if isinstance(owner, types.ModuleType) else kind.__module__
    if isinstance(owner, RANDOM_SOURCES):
        return False
    if name in OF_GENERATORS and torch.Generator in (
        getattr(function, "__objclass__", None),
        type(owner),
    ):
        return False
    if (
        name in _NOW
        and (owner if isinstance(owner, type) else type(owner)).__module__ == "datetime"
    ):
        return False
    if name in _THREADS or name in _SET_FOR_ALL:
        return False
    if module == "builtins":
        return name not in _IMPURE_BUILTINS
    return module.partition(".")[0].strip("_") in _REPEATABLE and "numpy.random" not in module
