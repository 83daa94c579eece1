# SPDX-License-Identifier: Apache-2.0
"""Sees what Python code asks tensors past the dispatcher while it is recorded."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from hostjit.recording.recorder import Recorder

__all__ = ["FunctionWatcher"]

# Methods that give the values of a tensor to Python: these may be guards.
_VALUES = frozenset({"tolist", "__repr__", "__str__", "__format__"})
# Those that give its memory or what no program knows of it.
_MEMORY = frozenset(
    {
        *("numpy", "__array__", "data_ptr", "storage_offset", "untyped_storage", "storage"),
        *("_typed_storage", "__dlpack__", "share_memory_", "register_hook", "__reduce_ex__"),
        *("register_post_accumulate_grad_hook", "resize_", "set_", "__cuda_array_interface__"),
        *("map_", "map2_", "apply_", "__deepcopy__", "_is_view", "is_shared", "is_pinned"),
    }
)
_MEMORY_ATTRIBUTES = frozenset(
    {"_version", "_base", "_cdata", "grad_fn", "output_nr", "retains_grad"}
)


class FunctionWatcher(TorchFunctionMode):
    """Tells a recorder of what Python code asks tensors past the dispatcher."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _VALUES:
            self._recorder.read(args[0], f"{name.strip('_')}()")
        elif name in _MEMORY:
            self._recorder.reads_memory(f"{name}()")
        elif name == "requires_grad_" and self._recorder.is_outside(args[0]):
            self._recorder.refuse("it calls requires_grad_() of a tensor that others have")
        elif name in ("__get__", "__set__", "__delete__"):
            attribute = getattr(getattr(func, "__self__", None), "__name__", "")
            if name == "__set__" and attribute in ("data", "requires_grad", "names"):
                self._recorder.refuse(f"it assigns '.{attribute}' of a tensor")
            elif attribute in ("grad", "_grad"):
                self._recorder.asked.add(id(args[0]))
            elif attribute == "is_leaf" and args[0].requires_grad:
                if self._recorder.is_argument(args[0]):
                    self._recorder.refuse("it asks whether an argument is a leaf")
            elif attribute == "grad_fn" and not args[0].requires_grad:
                pass  # None, whatever the values are
            elif attribute in _MEMORY_ATTRIBUTES:
                self._recorder.reads_memory(f"'{attribute}'")
        if func is torch.lstm and torch.is_grad_enabled():
            # What oneDNN's layer leaves for its backward pass is of its own kind.
            with torch.backends.mkldnn.flags(enabled=False):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))
