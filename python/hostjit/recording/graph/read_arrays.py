# SPDX-License-Identifier: Apache-2.0
"""Arrays that recorded code makes of tensors, `mean.cpu().numpy()`, and hands out as they are.

A replay makes another of what the program computes, as long as the function that has it keeps it to
itself, and does nothing with it but return it and put it into lists of its own.
"""

from __future__ import annotations

import operator
import types
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from hostjit.capturing.instances import is_one_of
from hostjit.capturing.traced_graph import storage_of
from hostjit.recording.code.libraries import is_library
from hostjit.recording.graph.kept_numbers import is_kept
from hostjit.recording.graph.read_numbers import TENSORS, with_values_read
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.stand_in import StandIn

__all__ = ["ReadArray", "array_of"]

_DTYPES = (torch.float16, torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
_ASKED = (
    *("lt", "le", "eq", "ne", "gt", "ge", "bool", "float", "int", "repr", "str", "format"),
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"),
    *("neg", "abs", "round", "index", "complex"),
)
_REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")


def array_of(tensor: Any, frame: types.FrameType, recorder: Recorder) -> ReadArray | None:
    """Return what stands for `tensor.numpy()` in the code of a frame.

    None where others may see the array, or where the tensor has memory that others see.
    """
    if not is_one_of(type(tensor), TENSORS) or tensor.dtype not in _DTYPES:
        return None
    if not tensor.is_cpu or tensor.layout is not torch.strided or tensor.requires_grad:
        return None
    if tensor.is_conj() or tensor.is_neg() or tensor.dim() > 0:
        return None
    node = recorder.node_of(tensor)
    if node is None or node.op == "placeholder" or is_library(frame.f_code.co_filename):
        return None
    if storage_of(tensor) in {storage_of(source.tensor) for source in recorder.sources}:
        return None
    if torch._C._functorch.peek_interpreter_stack() is not None or not is_kept(frame, recorder):
        return None
    return ReadArray(tensor.detach().clone(), tensor, recorder)


class ReadArray(StandIn):
    """An array without dims: what is done with it reads its value.

    Attributes:
        tensor: a copy of what is in it, which replays make an array of.
        of: the tensor whose memory it has in the recorded call.
    """

    __slots__ = ("_recorder", "_version", "of", "tensor")
    __array_ufunc__ = None  # NumPy's arrays leave it to this class

    def __init__(self, tensor: torch.Tensor, of: torch.Tensor, recorder: Recorder) -> None:
        self.tensor = tensor
        self.of, self._version = of, of._version
        self._recorder = recorder

    def plain(self) -> Any:
        """Return the array, for what comes behind the call."""
        if self.of._version != self._version:
            self._recorder.refuse("it writes to a tensor of which it has an array")
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return self.of.numpy()

    def followed_place(self, container: Any, index: Any) -> tuple[Any, Any]:
        """Return what `PLACES` looks up in place of `container[index]`."""
        return container, with_values_read(index)

    def followed_value(self, container: Any) -> Any:
        """Return what `PLACES` puts into a container as the array."""
        return self.read()

    def read(self) -> Any:
        """Return the array. From then on a replay compares what is in it."""
        self._recorder.read(self.tensor, "numpy()")
        return self.plain()


def _asking(name: str) -> Any:
    function = getattr(operator, name, None) or {"bool": bool, "float": float, "int": int}.get(name)

    def method(self: ReadArray, *args: Any) -> Any:
        array = self.read()
        if function is not None:
            return function(array, *args)
        return getattr(array, f"__{name}__")(*args)

    return method


def _reflected(name: str) -> Any:
    def method(self: ReadArray, other: Any) -> Any:
        return getattr(operator, name)(other, self.read())

    return method


def _in_place(name: str) -> Any:
    def method(self: ReadArray, other: Any) -> Any:
        self._recorder.refuse("it changes an array")
        return getattr(operator, name)(self.plain(), other)

    return method


for _name in _ASKED:
    setattr(ReadArray, f"__{_name}__", _asking(_name))
for _name in _REFLECTED:
    setattr(ReadArray, f"__r{_name}__", _reflected(_name))
    setattr(ReadArray, f"__i{_name}__", _in_place(f"i{_name}"))
