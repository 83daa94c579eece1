# SPDX-License-Identifier: Apache-2.0
"""Composite operators whose C++ code takes sizes for numbers, made of others for open sizes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch import _prims_common as utils

from hostjit.capturing.dynamic_dims import is_symbolic
from hostjit.capturing.python_kernels import Kernels, python_kernels_changed

__all__ = ["composites_of_open_sizes"]

aten = torch.ops.aten

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Gather where all dims but one are broadcast, at indices modulo the size of that one."""
    if indices.dtype is not torch.int64:
        raise RuntimeError("take_along_dim takes indices of int64")
    if dim is None:
        return x.reshape(-1).gather(0, indices.reshape(-1))
    if x.dim() != indices.dim():
        raise RuntimeError("take_along_dim takes an input and indices of as many dimensions")
    dim = utils.canonicalize_dim(x.dim(), dim)
    shape = [*x.shape]
    shape[dim] = indices.shape[dim]
    shape = [*torch.broadcast_shapes(shape, indices.shape)]
    places = indices.expand(shape)
    shape[dim] = x.shape[dim]
    return x.expand(shape).gather(dim, places % x.shape[dim])


def max_pool1d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Tensor:
    """The first result of `max_pool1d_with_indices`."""
    result: Tensor = max_pool1d_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode)[
        0
    ]
    return result


def max_pool1d_with_indices(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Pool rows of images of one row, as the operator of C++ does."""
    result, places = aten.max_pool2d_with_indices(
        x.unsqueeze(-2),
        [1, *kernel_size],
        [1, *(stride or kernel_size)],
        [0, *padding],
        [1, *dilation],
        ceil_mode,
    )
    return result.squeeze(-2), places.squeeze(-2)


def kron(x: Tensor, y: Tensor) -> Tensor:
    """Multiply each element of one by all of the other."""
    rank = max(x.dim(), y.dim())
    left = [1] * (rank - x.dim()) + [*x.shape]
    right = [1] * (rank - y.dim()) + [*y.shape]
    pairs = x.reshape([n for size in left for n in (size, 1)]) * y.reshape(
        [n for size in right for n in (1, size)]
    )
    shape = [a * b for a, b in zip(left, right, strict=True)]
    result: Tensor = aten._unsafe_view(pairs, shape)  # raises where eager does
    return result


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803
    """Powers of elements, one column for each: products of as many of them."""
    if x.dim() != 1:
        raise RuntimeError("vander takes a vector")
    count = x.shape[0] if N is None else N
    if count < 2:
        raise RuntimeError("vander of open sizes has two columns or more")
    dtype = torch.promote_types(x.dtype, torch.int64)
    columns = x.to(dtype).unsqueeze(1).expand(x.shape[0], count - 1).cumprod(1)
    powers = torch.cat([torch.ones_like(columns[:, :1]), columns], 1)
    return powers if increasing else powers.flip(1)


_KERNELS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.kron.default: kron,
    aten.max_pool1d.default: max_pool1d,
    aten.max_pool1d_with_indices.default: max_pool1d_with_indices,
    aten.take_along_dim.default: take_along_dim,
    aten.vander.default: vander,
}


def composites_of_open_sizes() -> contextlib.AbstractContextManager[None]:
    """Have traces run these where a size is open, and PyTorch's own code where none is."""
    kernels: dict[torch._ops.OpOverload, Kernels] = {
        operator: {_COMPOSITE: functools.partial(_run, operator, kernel)}
        for operator, kernel in _KERNELS.items()
    }
    return python_kernels_changed(kernels)


def _run(
    operator: torch._ops.OpOverload, kernel: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    if any(is_symbolic(value) for value in (*args, *kwargs.values())):
        return kernel(*args, **kwargs)
    return operator._op_dk(_COMPOSITE, *args, **kwargs)
