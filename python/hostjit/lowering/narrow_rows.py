# SPDX-License-Identifier: Apache-2.0
"""Few long rows on a CUDA device, where a block for each would leave most of the device idle.

Blocks share them: by two launches where they take one pass, by several where they take more. Of
what can't be divided, one pass each is left apart.
"""

from __future__ import annotations

import math

from torch.fx import Node

from hostjit.kernels import KernelBuilder, PointwiseKernel
from hostjit.kernels.cuda import split_long_rows
from hostjit.kernels.expression import Load
from hostjit.kernels.reduction_plan import make_plan
from hostjit.lowering.devices import device_of
from hostjit.lowering.pointwise import check_tensor, dtype_of
from hostjit.lowering.reductions import emit_reduction, points_shape, rows_of, rule_of

__all__ = ["is_left_apart", "num_narrow_rows", "parts_on_cuda"]

# Blocks that fill a large device, and the elements that one of them reads in the time of a launch.
_FEW = 128
_LONG = 1 << 15
# Elements of a part of a row, at least, and rows that a block has side by side.
_SHORTEST = 512
_SIDE_BY_SIDE = 32


def num_narrow_rows(node: Node) -> int | None:
    """The number of rows of a reduction, if they are few and long, and on a CUDA device."""
    device = device_of(node)
    rows = rows_of(node) if rule_of(node) else None
    if rows is None or device is None or device.type != "cuda":
        return None
    total = math.prod(points_shape(node))
    if not isinstance(rows.count, int) or not isinstance(total, int) or rows.count < _LONG:
        return None
    number = total // rows.count
    return number if number < _FEW else None


def is_left_apart(node: Node) -> bool:
    """Whether a reduction of few long rows goes over them more than once, and can't be shared."""
    rule, number = rule_of(node), num_narrow_rows(node)
    if rule is None or number is None:
        return False
    points = math.prod(points_shape(node))
    assert isinstance(points, int)
    length = points // number
    builder = KernelBuilder("probe", (number, length), 1)
    results = emit_reduction(node, builder, _RowProbe(builder, length))
    for kind, value in zip(rule.results, results, strict=False):
        strides = (length, 1) if kind == "element" else (1, 0)
        builder.store(builder.output(builder.dtype(value)), value, strides)
    kernel = builder.build()
    return len(make_plan(kernel, 1).passes) > 1 and split_long_rows(kernel) is None


def parts_on_cuda(kernel: PointwiseKernel) -> int:
    """Into how many parts to divide each row of a kernel, so that enough blocks share them."""
    kept = len(kernel.shape) - kernel.num_reduced
    rows, length = math.prod(kernel.shape[:kept]), math.prod(kernel.shape[kept:])
    if not kernel.has_rows or not isinstance(rows, int) or not isinstance(length, int):
        return 1
    blocks = -(-rows // _SIDE_BY_SIDE) if _lie_side_by_side(kernel) else rows
    if blocks >= _FEW or blocks * length < _LONG or rows * length < 4 * _LONG:
        return 1
    return min(2 * _FEW // blocks, length // _SHORTEST)


def _lie_side_by_side(kernel: PointwiseKernel) -> bool:
    """Whether neighbours in memory are of different rows, of which one block then has several."""
    kept = len(kernel.shape) - kernel.num_reduced
    loads = [value for value in kernel.values if isinstance(value, Load)]
    return any(1 in load.strides[:kept] for load in loads)


class _RowProbe:
    """Reads operands, element by element, into a kernel that is thrown away."""

    def __init__(self, builder: KernelBuilder, length: int) -> None:
        self.builder = builder
        self.length = length

    def read(self, node: Node) -> int:
        check_tensor(node)
        return self.builder.load(self.builder.input(dtype_of(node)), (self.length, 1))

    def position(self, node: Node) -> int:
        raise AssertionError("a reduction makes nothing of nothing")

    def select(self, selection: object, places: object) -> int:
        raise AssertionError("a reduction meets its operands in place")

    def index(self, shape: object, strides: object) -> int:
        return self.builder.index((1,))
