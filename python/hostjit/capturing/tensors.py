# SPDX-License-Identifier: Apache-2.0
"""Which tensors can be captured, and what a program assumes about one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from hostjit import _C
from hostjit.capturing.errors import CaptureError, CaptureFailure

__all__ = ["TensorFacts", "check_tensor", "is_plain_type", "looking_at_tensors"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_PLAIN_TENSOR_TYPES: tuple[type, ...] = tuple(
    t for t in (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", None)) if t
)


# What classes that derive from these may have otherwise: none of it is asked when one computes.
_MAY_DIFFER = frozenset(
    {
        *("__new__", "__init__", "__init_subclass__", "__module__", "__doc__", "__dict__"),
        *("__weakref__", "__annotations__", "__qualname__", "__slots__", "__torch_function__"),
        *("__repr__", "__format__", "__deepcopy__", "__reduce_ex__", "__setstate__"),
        *("__firstlineno__", "__static_attributes__", "__orig_bases__", "__parameters__"),
    }
)


def is_plain_type(kind: type) -> bool:
    """Tell whether tensors of a type compute as plain ones do, and make plain ones.

    So do those of classes that derive from `nn.Parameter`, to have more attributes say, and change
    nothing that a tensor has.
    """
    if kind in _PLAIN_TENSOR_TYPES:
        return True
    if not issubclass(kind, torch.Tensor):
        return False
    if kind.__torch_function__ is not torch._C._disabled_torch_function_impl:
        return False
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return False
    own = [base for base in kind.__mro__ if base not in torch.nn.Parameter.__mro__]
    names = {name for base in own for name in vars(base)} - _MAY_DIFFER
    if any(hasattr(torch.nn.Parameter, name) for name in names):
        return False
    _C.register_plain_tensors(kind)
    return True


def looking_at_tensors(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have a function read the sizes and dtypes of tensors without running the user's code.

    A subclass of tensors is asked for each of them otherwise, by its `__torch_function__`.
    """

    @functools.wraps(function)
    def look(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **kwargs)

    return look


@dataclasses.dataclass(frozen=True)
class TensorFacts:
    """What a program assumes about one tensor besides its data.

    Attributes:
        type: the exact Python type, `torch.Tensor`, `Parameter` or `Buffer`.
        key_set: `c10::DispatchKeySet::raw_repr()`: backend, autograd, conjugate, negative,
            inference and wrapper bits in one comparison.
        sizes, strides: in elements.
        storage_offset: at capture; to be checked only when
            `CapturedProgram.depends_on_storage_offset` says so.
    """

    type: type
    key_set: int
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    requires_grad: bool
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    storage_offset: int

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorFacts:
        """Read the facts of a plain strided tensor."""
        return TensorFacts(
            type=type(tensor),
            key_set=torch._C._dispatch_keys(tensor).raw_repr(),
            dtype=tensor.dtype,
            device=tensor.device,
            layout=tensor.layout,
            requires_grad=tensor.requires_grad,
            sizes=tuple(tensor.size()),
            strides=tuple(tensor.stride()),
            storage_offset=int(tensor.storage_offset()),
        )

    def matches(self, tensor: object, *, storage_offset: bool = False) -> bool:
        """Tell whether `tensor` has these facts (the slow, plain form of the check)."""
        if type(tensor) is not self.type or not isinstance(tensor, torch.Tensor):
            return False
        found = TensorFacts.of(tensor)
        if not storage_offset:
            found = dataclasses.replace(found, storage_offset=self.storage_offset)
        return found == self


def check_tensor(tensor: torch.Tensor, name: str) -> None:
    """Raise CaptureError, naming the tensor, unless it is plain and strided.

    Sparse, quantised, nested and mkldnn tensors, subclasses, fake and functional tensors, and
    those of functorch transforms are refused here, before anything is traced.
    """
    problem = _tensor_problem(tensor)
    if problem is not None:
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_INPUT,
            f"{name} is {problem}",
            hint="pass a plain strided torch.Tensor, or run this call eagerly",
        )


def _tensor_problem(tensor: torch.Tensor) -> str | None:
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return "a tensor inside a torch.func transform (vmap, grad, functionalize)"
    if not is_plain_type(type(tensor)):
        kind = "a fake tensor" if _is_fake(tensor) else "a tensor subclass"
        return f"{kind} ({type(tensor).__module__}.{type(tensor).__qualname__})"
    if torch._is_functional_tensor(tensor):
        return "a functional tensor"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    if tensor.is_quantized:
        return f"a quantised tensor ({tensor.dtype})"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.is_meta:
        return "a meta tensor, which has no data"
    if torch._is_zerotensor(tensor):
        return "a tensor of zeros without memory"
    return None


def _is_fake(tensor: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)
