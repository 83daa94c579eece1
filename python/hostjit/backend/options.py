# SPDX-License-Identifier: Apache-2.0
"""What `torch.compile(..., mode=..., options=...)` may say to the backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hostjit import _C
from hostjit.compiling.options import Options

__all__ = ["READ_BY_DYNAMO", "read_options"]

# All the same here: CUDA graphs are an option of their own, and there is no tuning.
MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
READ_BY_DYNAMO = frozenset({"guard_filter_fn"})
"""Options that Dynamo reads before the backend is called."""
_OF_CODE = ("graphs", "streams", "kernels")
_RUNTIMES = (None, "jit", "evaluator")


def read_options(mode: str | None = None, options: Mapping[str, Any] | None = None) -> Options:
    """Check and return what the user gave; raises hostjit.Error that names what is wrong."""
    if mode is not None and mode not in MODES:
        raise _C.Error(f"unknown mode '{mode}', expected {_list(MODES)}")
    given = {name: value for name, value in (options or {}).items() if name not in READ_BY_DYNAMO}
    names = [field.name for field in dataclasses.fields(Options)]
    for name, value in given.items():
        if name not in names:
            raise _C.Error(f"unknown option '{name}', expected {_list(names)}")
        if name == "runtime":
            if value not in _RUNTIMES:
                raise _C.Error(f"unknown runtime '{value}', expected 'jit' or 'evaluator'")
        elif name not in _OF_CODE and not isinstance(value, bool):
            raise _C.Error(f"option '{name}' is a bool, got {value!r}")
    found = Options(**given)
    found.choices()
    return found


def _list(names: Any) -> str:
    quoted = [f"'{name}'" for name in names]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"
