# SPDX-License-Identifier: Apache-2.0
"""Large operators as the small ones they are made of, where those fuse to something faster.

PyTorch computes recurrent cells, attention and encoder layers by one operator each. At the sizes
where the host is what one waits for, linear layers and fused kernels are several times faster, and
their results agree to rounding. Larger work is left to the operator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._decomp.decompositions import cudnn_batch_norm
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from hostjit.capturing.decompositions.convolution import convolution
from hostjit.capturing.decompositions.derivatives import BACKWARD_DECOMPOSITIONS
from hostjit.capturing.decompositions.dropout import dropout
from hostjit.capturing.decompositions.eager_strides import (
    correction_of_strides,
    strides_kept,
    with_strides,
)
from hostjit.capturing.decompositions.encoder_layer import encoder_layer
from hostjit.capturing.decompositions.foreach import for_each_tensor, is_foreach
from hostjit.capturing.decompositions.launches import with_aliases_written
from hostjit.capturing.decompositions.lstm import lstm
from hostjit.capturing.decompositions.memory_formats import MEMORY_FORMATS
from hostjit.capturing.decompositions.recurrent import RECURRENT_CELLS, Scan, recurrent_network
from hostjit.capturing.decompositions.scaled_dot_product import scaled_dot_product_attention
from hostjit.capturing.decompositions.small_operators import SMALL_OPERATORS
from hostjit.capturing.functional.composite_autocast import CompositeAutocast
from hostjit.capturing.functional.result_types import refuse_other_result_types
from hostjit.capturing.numbers.refused_numbers import refuse_numbers
from hostjit.capturing.open_sizes import known
from hostjit.capturing.operand_devices import on_cuda
from hostjit.capturing.overlap import refuse_overlapping_operands
from hostjit.launching.launch_operator import LAUNCH

__all__ = ["Decompositions", "is_taken_apart"]

aten = torch.ops.aten
Tensor = torch.Tensor

_HALVES = (torch.float16, torch.bfloat16)


_AS_STRIDED = (aten.as_strided.default, aten.as_strided_copy.default)


class Decompositions(TorchDispatchMode):
    """Replaces operators of the table while it is in force, where their decomposition applies.

    Attributes:
        strided_views: the arguments of each `as_strided` that it has met.
    """

    def __init__(self, scan: Scan, autocast: CompositeAutocast) -> None:
        """Replace operators of a graph whose loops `scan` records; `autocast` knows its setting."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._autocast = autocast
        self.strided_views: list[Sequence[Any]] = []
        self._scan = scan

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        refuse_numbers(func, args, kwargs)
        if func is LAUNCH:
            args = with_aliases_written(args)
        elif func._schema.is_mutable:
            refuse_overlapping_operands(func, args, kwargs)
            refuse_other_result_types(func, args, kwargs)
            with strides_kept(func, args, kwargs):
                return self._run(func, args, kwargs)
        return self._run(func, args, kwargs)

    def _run(self, func: Any, args: Sequence[Any], kwargs: Any) -> Any:
        decomposition = self._decomposition_of(func, args)
        with self, self._autocast.inside(func):
            # What a composite operator is made of may be in the table too.
            result = decomposition(*args, **kwargs) if decomposition else NotImplemented
            if result is NotImplemented:
                decomposition = None
                result = func.decompose(*args, **kwargs)
        if result is NotImplemented:
            result = func(*args, **kwargs)
            if func in _AS_STRIDED:
                self.strided_views.append((*args, *kwargs.values()))
            correct = correction_of_strides(func, result)
            if correct is None:
                return result
            with self:
                return correct(func, args, kwargs, result)
        if decomposition is None or func in _WITH_EAGERS_STRIDES or is_foreach(func):
            return result
        with disable_proxy_modes_tracing():
            whole = func(*args, **kwargs)
        with self:
            return tree_map(with_strides, result, whole)

    def _decomposition_of(self, func: Any, args: Sequence[Any]) -> Callable[..., Any] | None:
        if func in RECURRENT_CELLS and not on_cuda(args):
            return functools.partial(recurrent_network, RECURRENT_CELLS[func], self._scan)
        if func is aten.lstm.input and not on_cuda(args):
            return functools.partial(lstm, self._scan)
        if func in _BY_DEVICE:
            cpu, cuda = _BY_DEVICE[func]
            decomposition = cuda if on_cuda(args) else cpu
            if decomposition is not None:
                return decomposition
        if is_foreach(func) and not on_cuda(args):
            return for_each_tensor(func)
        return _TABLE.get(func) or _OF_DYNAMO.get(func.name())


def is_taken_apart(func: torch._ops.OpOverload) -> bool:
    """Tell whether an operator may be replaced by small ones, of some operands at least."""
    return (
        func in _TABLE
        or func in _BY_DEVICE
        or func in RECURRENT_CELLS
        or is_foreach(func)
        or func.name() in _OF_DYNAMO
    )


def _multiply_add(a: Tensor, b: Tensor | float, c: Tensor) -> Tensor:
    return a * b + c


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """The sum and the product where a layer's bias has other shapes than most.

    And the product, then the sum, where eager rounds the product to a half type in between.
    """
    if bias is None or x.dtype is not bias.dtype:
        return NotImplemented
    is_vector = bias.dim() == 1
    if x.dim() == 2:
        return NotImplemented if is_vector else aten.addmm(bias, x, weight.t())
    is_row = bias.dim() > 0 and known(bias.numel() == bias.shape[-1])
    if x.is_contiguous() and bias.is_contiguous() and is_row:
        if is_vector or bias.dim() > 2:  # eager raises for the latter
            return NotImplemented
        return torch.nn.functional.linear(x, weight, bias.reshape(-1))
    if is_vector and x.dtype not in _HALVES:
        return NotImplemented
    product = torch.nn.functional.linear(x, weight)
    fits = bias.dim() <= product.dim() and all(
        known(b == 1) or known(b == p)
        for b, p in zip(reversed(bias.shape), reversed(product.shape), strict=False)
    )
    return product + bias if fits else NotImplemented


def _power(x: Tensor, exponent: Any) -> Any:
    """The power of truth values by a truth value, which fake tensors take for integers."""
    if x.dtype is not torch.bool or not isinstance(exponent, bool):
        return NotImplemented
    return x.clone() if exponent else torch.ones_like(x)


def _nansum(
    x: Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """The sum over all dims where there are none in a list; fake tensors keep each then."""
    if dim is None or len(dim) > 0:
        return NotImplemented
    return aten.nansum.default(x, None, keepdim, dtype=dtype)


def _soft_margin_loss(x: Tensor, target: Tensor, reduction: int = 1) -> Any:
    """Of the type of `x` for targets of another: eager multiplies in place."""
    if x.dtype is target.dtype or not x.is_floating_point():
        return NotImplemented
    losses = (-x * target).to(x.dtype).exp().log1p()
    return (losses, losses.mean(), losses.sum())[reduction]


def _soft_margin_loss_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Any:
    """As `_soft_margin_loss`, after ATen's formula."""
    if x.dtype is target.dtype:
        return NotImplemented
    power = torch.exp(-target * x)
    scale = -1 / x.numel() if reduction == 1 else -1
    found = (target * power).to(x.dtype) * scale
    return (found / (power + 1)).to(x.dtype) * gradient


def _divided(x: Any, divisor: Any, **_: Any) -> Any:
    """As it is; an open number that integers are divided by is not 0, for which eager raises."""
    if isinstance(divisor, torch.SymInt) and isinstance(x, Tensor) and not x.is_floating_point():
        bool(divisor != 0)  # which becomes a guard
    return NotImplemented


def _pad_circular(x: Tensor, pad: Sequence[int]) -> Any:
    """The ends of each dimension around it; PyTorch's writes to parts are copies of the whole."""
    sizes = x.shape[x.dim() - len(pad) // 2 :][::-1]
    if not all(
        known(width >= 0) and known(width <= sizes[position // 2])
        for position, width in enumerate(pad)
    ):
        return aten._pad_circular.default.decompose(x, pad)
    x = x.contiguous()
    for position, size in enumerate(sizes):
        before, after = pad[2 * position], pad[2 * position + 1]
        dim = x.dim() - 1 - position
        parts = (x.narrow(dim, size - before, before), x, x.narrow(dim, 0, after))
        x = torch.cat(parts, dim)
    return x


def _singular_values(x: Tensor, *, driver: str | None = None) -> Any:
    """Without the vectors, which only gradients need."""
    return aten._linalg_svd.default(x, False, False, driver=driver)[1]


def _vector_norm(
    x: Tensor,
    ord: float = 2,  # noqa: A002
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """The norm of one element; the fake tensors of torch 2.11 keep its dimensions always."""
    if not known(x.numel() == 1) or x.dim() == 0:
        return NotImplemented
    reduced = len(dim) if dim else x.dim()
    kept = x.dim() if keepdim else x.dim() - reduced
    norm = aten.linalg_vector_norm.default(x.reshape(()), ord, dtype=dtype)
    return norm.reshape((1,) * kept)


_TABLE: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    **BACKWARD_DECOMPOSITIONS,
    **MEMORY_FORMATS,
    aten._efficientzerotensor.default: aten.zeros.default,  # it has no memory, which kernels read
    aten._lazy_clone.default: aten.clone.default,  # its fake tensors have one memory
    aten._pad_circular.default: _pad_circular,
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten.div.Scalar_mode: _divided,
    aten.div.Tensor_mode: _divided,
    aten.floor_divide.Scalar: _divided,
    aten.floor_divide.default: _divided,
    aten.fmod.Scalar: _divided,
    aten.fmod.Tensor: _divided,
    aten.remainder.Scalar: _divided,
    aten.remainder.Tensor: _divided,
    aten.cudnn_batch_norm.default: cudnn_batch_norm,
    aten.dropout.default: dropout,
    aten.linalg_svdvals.default: _singular_values,
    aten.linalg_vector_norm.default: _vector_norm,
    aten.linear.default: _linear,
    aten.nansum.default: _nansum,
    aten.pow.Tensor_Scalar: _power,
    aten.soft_margin_loss.default: _soft_margin_loss,
    aten.soft_margin_loss_backward.default: _soft_margin_loss_backward,
}
# On the CPU, and on CUDA devices. What is taken apart on the CPU alone is one kernel of a library
# on CUDA, where launches cost more than arithmetic.
_BY_DEVICE: dict[
    torch._ops.OpOverload, tuple[Callable[..., Any] | None, Callable[..., Any] | None]
] = {
    aten.convolution.default: (convolution, None),
    # Its second result is empty on CUDA.
    aten.log_sigmoid_forward.default: (
        None,
        decomposition_table[aten.log_sigmoid_forward.default],
    ),
    aten.scaled_dot_product_attention.default: (scaled_dot_product_attention, None),
    **{operator: (small, None) for operator, small in SMALL_OPERATORS.items()},
}
# Those whose decompositions have results of the operator's strides.
_WITH_EAGERS_STRIDES = frozenset(
    {*MEMORY_FORMATS, *RECURRENT_CELLS, aten.lstm.input, aten.cudnn_batch_norm.default}
)
# Operators that Dynamo itself puts into graphs, by name: they exist once it has. The schema of
# this one says that a number is a tensor.
_OF_DYNAMO: dict[str, Callable[..., Any]] = {"prims::fma": _multiply_add}
