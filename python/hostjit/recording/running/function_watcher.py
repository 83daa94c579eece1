# SPDX-License-Identifier: Apache-2.0
"""Sees what Python code asks tensors past the dispatcher while it is recorded."""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from hostjit.bytecode.followed_calls import float_of
from hostjit.capturing.decompositions.attention import native_attention
from hostjit.recording.code.seen_code import Unseen
from hostjit.recording.graph.read_arrays import ReadArray, array_of
from hostjit.recording.graph.read_numbers import ReadNumber, number_of
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.running.recurrent_networks import is_cast_network, recorded_network

__all__ = ["FunctionWatcher", "unseen_watcher"]

# Methods that give the values of a tensor to Python: these may be guards.
_VALUES = frozenset({"tolist", "__repr__", "__str__", "__format__"})
# Those that give its memory or what no program knows of it.
_MEMORY = frozenset(
    {
        *("numpy", "__array__", "data_ptr", "storage_offset", "untyped_storage", "storage"),
        *("_typed_storage", "__dlpack__", "share_memory_", "__reduce_ex__", "resize_", "set_"),
        *("__cuda_array_interface__", "map_", "map2_", "apply_", "__deepcopy__", "_is_view"),
        *("is_shared", "is_pinned"),
    }
)
_MEMORY_ATTRIBUTES = frozenset({"_version", "_base", "_cdata"})
# What depends on the graph of a tensor, and what changes it.
_GRAPH_ATTRIBUTES = frozenset(
    {"grad_fn", "output_nr", "retains_grad", "_backward_hooks", "_post_accumulate_grad_hooks"}
)
_HOOKS = frozenset({"register_hook", "register_post_accumulate_grad_hook", "retain_grad"})


class FunctionWatcher(TorchFunctionMode):
    """Tells a recorder of what Python code asks tensors past the dispatcher."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        with Unseen():
            found = self._look_at(func, args, kwargs, sys._getframe(1))
        if found is not None:
            return found
        if func is torch._native_multi_head_attention and not args[0].is_nested:
            return native_attention(*args, **(kwargs or {}))
        with recorded_network(func, args):
            return func(*args, **(kwargs or {}))

    def _look_at(self, func: Any, args: Any, kwargs: Any, frame: types.FrameType) -> Any:
        """Tell the recorder of a call in a frame; return what stands for the result, or None."""
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.numpy and len(args) == 1 and not kwargs:
            array = self._array_of(args[0], frame)
            if array is not None:
                return array
        if name in _VALUES:
            self._recorder.read(args[0], f"{name.strip('_')}()")
        elif name in _MEMORY:
            self._recorder.reads_memory(f"{name}()")
        elif name in _HOOKS:
            self._recorder.note_hook(name, args[0])
        elif name == "requires_grad_" and self._recorder.is_outside(args[0]):
            self._recorder.refuse("it calls requires_grad_() of a tensor that others have")
        elif name in ("__get__", "__set__", "__delete__"):
            attribute = getattr(getattr(func, "__self__", None), "__name__", "")
            if name == "__set__" and attribute in ("data", "requires_grad", "names"):
                self._recorder.refuse(f"it assigns '.{attribute}' of a tensor")
            elif attribute in ("grad", "_grad"):
                self._recorder.asked.add(id(args[0]))
                if name == "__set__" and args[1] is not None:
                    self._recorder.leaving.gradient_is_assigned = True
            elif attribute == "is_leaf" and args[0].requires_grad:
                if self._recorder.is_argument(args[0]):
                    self._recorder.refuse("it asks whether an argument is a leaf")
            elif attribute in _GRAPH_ATTRIBUTES:
                if args[0].requires_grad and self._recorder.is_outside(args[0]):
                    self._recorder.reads_memory(f"'{attribute}'")
            elif attribute in _MEMORY_ATTRIBUTES:
                self._recorder.reads_memory(f"'{attribute}'")
        if is_cast_network(func, args):
            self._recorder.refuse("it trains an LSTM under autocast")
        self._recorder.autocast.note()
        if self._recorder.on_read == "guard":
            number = self._number_of(func, args, frame)
            if number is not None:
                self._recorder.has_numbers = True
                return number
        return None

    def _array_of(self, tensor: Any, frame: types.FrameType) -> ReadArray | None:
        """What stands for an array that the code of a frame makes of a tensor."""
        if self._recorder.on_read != "guard":
            return None
        array = array_of(tensor, frame, self._recorder)
        self._recorder.has_numbers = self._recorder.has_numbers or array is not None
        return array

    def _number_of(self, func: Any, args: Any, frame: types.FrameType) -> ReadNumber | None:
        """What stands for the number that a method gives to the code of a frame."""
        if func is torch.Tensor.item:
            return number_of(args[0], frame, self._recorder)
        if func is torch.Tensor.__float__ and frame.f_code is float_of.__code__:
            assert frame.f_back is not None
            return number_of(args[0], frame.f_back, self._recorder, is_float=True)
        return None


_lock = threading.Lock()
_entered = 0
_original: Any = None  # while it is replaced


@contextlib.contextmanager
def unseen_watcher() -> Iterator[None]:
    """Have modules of torch.nn decide as if no `FunctionWatcher` were there.

    Attention and encoders of transformers take other paths where functions may be overridden, some
    of which give padding other values. Threads may enter and leave in any order.
    """
    global _entered, _original
    with _lock:
        _entered += 1
        if _entered == 1:
            _original = torch.overrides.has_torch_function
            torch.overrides.has_torch_function = _without_watcher(_original)  # type: ignore[assignment]
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if _entered == 0:
                torch.overrides.has_torch_function = _original


def _without_watcher(original: Callable[[Iterable[Any]], bool]) -> Callable[[Iterable[Any]], bool]:
    def has_torch_function(args: Iterable[Any]) -> bool:
        modes = _get_current_function_mode_stack()
        if len(modes) != 1 or not isinstance(modes[0], FunctionWatcher):
            return original(args)
        with torch.overrides._pop_mode_temporarily():
            return original(args)

    return has_torch_function
