# SPDX-License-Identifier: Apache-2.0
"""How long a kernel may take, to decide whether threads are worth waking."""

from __future__ import annotations

import math

from hostjit.kernels.expression import (
    Apply,
    Bounded,
    Cast,
    Expression,
    Index,
    Load,
    PointwiseKernel,
    Reduce,
    operands_of,
)
from hostjit.kernels.sizes import magnitude
from hostjit.kernels.vector_math import VECTOR_MATH

__all__ = ["estimated_nanoseconds", "nanoseconds_per_point"]

# Measured on one core of Zen 5 with AVX-512, per element of f32: buffers in the third-level cache,
# arithmetic, and functions (the operations made of them included).
_PER_BYTE = 0.01
_PER_OPERATION = 0.03
_PER_FUNCTION = 0.4
_PER_INDEX = 0.6  # of an element; that of a row costs more, but little beside the row
_FUNCTIONS = {*VECTOR_MATH, "sigmoid", "silu", "gelu", "gelu_tanh", "log_sigmoid", "elu", "mish"}


def estimated_nanoseconds(kernel: PointwiseKernel) -> float:
    """Estimate the time of one thread for all points of a kernel, within a small factor.

    One whose sizes are only known at the call is estimated at typical ones.
    """
    points = magnitude(math.prod(kernel.shape)) * _points_share(kernel)
    return points + _PER_INDEX * _num_indices(kernel)


def nanoseconds_per_point(kernel: PointwiseKernel) -> float:
    """Estimate the time of one thread for one point of many."""
    return estimated_nanoseconds(kernel) / max(magnitude(math.prod(kernel.shape)), 1)


def _points_share(kernel: PointwiseKernel) -> float:
    written = sum(store.dtype.itemsize for store in kernel.stores) * _PER_BYTE
    return written + sum(map(_nanoseconds, kernel.values))


def _num_indices(kernel: PointwiseKernel) -> int:
    """The number of places that are looked up: an index that stays along a dimension is one."""
    moving: list[frozenset[int]] = []
    for value in kernel.values:
        dims = frozenset[int]().union(*(moving[operand] for operand in operands_of(value)))
        if isinstance(value, Load | Index):
            dims |= {dim for dim, stride in enumerate(value.strides) if stride != 0}
        moving.append(dims)
    return sum(
        magnitude(math.prod(kernel.shape[dim] for dim in dims))
        for value, dims in zip(kernel.values, moving, strict=True)
        if isinstance(value, Bounded)
    )


def _nanoseconds(value: Expression) -> float:
    match value:
        case Load(dtype=dtype, strides=strides, terms=terms):
            moves = any(stride != 0 for stride in strides)
            return dtype.itemsize * _PER_BYTE if terms or moves else 0.0
        case Apply(name=name):
            return _PER_FUNCTION if name in _FUNCTIONS else _PER_OPERATION
        case Cast() | Reduce():
            return _PER_OPERATION
    return 0.0
