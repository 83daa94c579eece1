# SPDX-License-Identifier: Apache-2.0
"""Composite operators whose C++ code takes sizes for numbers, made of others for open sizes."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch import _prims_common as utils
from torch.utils._pytree import tree_leaves

from hostjit.capturing.dynamic_dims import is_symbolic
from hostjit.capturing.functional.fake_results import fake_results_by
from hostjit.capturing.functional.open_gradient import GRADIENTS
from hostjit.capturing.numbers.losses import cross_entropy as smooth_cross_entropy
from hostjit.capturing.numbers.ranges import linspace
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


def matrix_norm(
    x: Tensor,
    ord: float,  # noqa: A002
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The largest or the smallest of singular values, or of the sums of columns or rows."""
    if abs(ord) not in (1, 2, math.inf) or len(dim) != 2 or x.dim() < 2:
        raise RuntimeError("a matrix norm is of order 1, 2 or inf, or less than zero, of two dims")
    first, second = utils.canonicalize_dims(x.dim(), tuple(dim))
    if first == second or not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError("a matrix norm is of two dims that differ, and of no integers")
    if dtype is not None and torch.promote_types(x.dtype, dtype) is not dtype:
        raise RuntimeError("the dtype of a matrix norm is one that its input converts to")
    choose = torch.amax if ord > 0 else torch.amin
    if abs(ord) == 2:
        matrices = x if dtype is None else x.to(dtype)
        values = torch.linalg.svdvals(matrices.movedim((first, second), (-2, -1)))
        norm = choose(values, -1, keepdim)
        return norm.unsqueeze(-1).movedim((-2, -1), (first, second)) if keepdim else norm
    if abs(ord) == math.inf:
        first, second = second, first
    sums = torch.linalg.vector_norm(x, 1.0, first, keepdim, dtype=dtype)
    return choose(sums, second if keepdim or second < first else second - 1, keepdim)


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """That of probabilities, and of smooth labels."""
    if target.dtype.is_floating_point:
        return _cross_entropy_of_probabilities(x, target, weight, reduction, label_smoothing)
    if label_smoothing == 0.0 or x.dtype not in (torch.float32, torch.float64):
        others = (reduction, ignore_index, label_smoothing)
        kernel = aten.cross_entropy_loss.default._op_dk
        result: Tensor = kernel(_COMPOSITE, x, target, weight, *others)
        return result
    return smooth_cross_entropy(
        x,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=("none", "mean", "sum")[reduction],
        label_smoothing=label_smoothing,
    )


def _cross_entropy_of_probabilities(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, label_smoothing: float
) -> Tensor:
    if x.shape != target.shape or x.dim() < 1:
        raise RuntimeError("cross_entropy takes probabilities of the shape of its input")
    dim = 0 if x.dim() == 1 else 1
    classes = x.shape[dim]
    if label_smoothing > 0.0:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    products = torch.log_softmax(x, dim, x.dtype) * target
    if weight is not None:
        if weight.dim() != 1 or weight.shape[0] != classes:
            raise RuntimeError("cross_entropy takes one weight for each class")
        products = products * weight.reshape([classes if d == dim else 1 for d in range(x.dim())])
    if reduction == 0:
        return -products.sum(dim)
    total = -products.sum()
    return total / (x.numel() // classes) if reduction == 1 else total


def affine_grid_backward(grad: Tensor, size: Sequence[Any], align_corners: bool) -> Tensor:
    """The products of the gradient and the grid of no transformation."""
    batch, _, *sides = size
    rank = len(sides)
    if grad.dtype not in (torch.float32, torch.float64) or any(side < 2 for side in sides):
        kernel = aten.affine_grid_generator_backward.default._op_dk
        result: Tensor = kernel(_COMPOSITE, grad, size, align_corners)
        return result
    axes = []
    for position, side in enumerate(sides):
        axis = linspace(-1.0, 1.0, side, dtype=grad.dtype, device=grad.device)
        axis = axis if align_corners else axis * (side - 1) / side
        axes.append(axis.reshape([side if d == position else 1 for d in range(rank)]).expand(sides))
    places = torch.stack([*reversed(axes), torch.ones_like(axes[0])], -1)
    count = math.prod(sides)
    columns = places.reshape(count, rank + 1).t().expand(batch, rank + 1, count)
    return torch.bmm(columns, grad.reshape(batch, count, rank)).transpose(1, 2)


def _affine_grid(
    mode: Any, func: Any, theta: Tensor, size: Sequence[Any], align_corners: bool
) -> Any:
    """A new tensor for the result, which PyTorch's fake one knows by a table of known size."""
    if not any(is_symbolic(length) for length in size):
        return NotImplemented
    with mode:
        return theta.new_empty((size[0], *size[2:], len(size) - 2))


_KERNELS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    **GRADIENTS,
    aten.affine_grid_generator_backward.default: affine_grid_backward,
    aten.cross_entropy_loss.default: cross_entropy,
    aten.kron.default: kron,
    aten.linalg_matrix_norm.default: matrix_norm,
    aten.max_pool1d.default: max_pool1d,
    aten.max_pool1d_with_indices.default: max_pool1d_with_indices,
    aten.take_along_dim.default: take_along_dim,
    aten.vander.default: vander,
}


@contextlib.contextmanager
def composites_of_open_sizes() -> Iterator[None]:
    """Have traces run these where a size is open, and PyTorch's own code where none is."""
    kernels: dict[torch._ops.OpOverload, Kernels] = {
        operator: {_COMPOSITE: functools.partial(_run, operator, kernel)}
        for operator, kernel in _KERNELS.items()
    }
    fakes = {aten.affine_grid_generator.default: _affine_grid}
    with python_kernels_changed(kernels), fake_results_by(fakes):
        yield


def _run(
    operator: torch._ops.OpOverload, kernel: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    if any(map(is_symbolic, tree_leaves((args, kwargs)))):
        return kernel(*args, **kwargs)
    return operator._op_dk(_COMPOSITE, *args, **kwargs)
