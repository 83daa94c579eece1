# SPDX-License-Identifier: Apache-2.0
"""Where in a matrix the point of a kernel is."""

from __future__ import annotations

import math

from hostjit.kernels import DType
from hostjit.lowering.pointwise import PointwiseContext
from hostjit.lowering.sizes import shape_of

__all__ = ["row_and_column"]

# Of more elements, finding out costs more than ATen's whole walk over the rows.
_MOST_ELEMENTS = 1 << 14


def row_and_column(context: PointwiseContext) -> tuple[int, int]:
    """Return the row and the column of the current point, in the last two dims of the node."""
    shape = shape_of(context.node.meta["val"])
    sizes = [size for size in shape if isinstance(size, int) and size > 0]
    is_small = len(sizes) == len(shape) and math.prod(sizes) <= _MOST_ELEMENTS
    context.require(is_small, "an empty or a large matrix, or one of a size that calls tell")
    position = context.reader.position(context.node)
    height, width = (context.builder.constant(DType.I64, size) for size in sizes[-2:])
    row = context.apply("div_trunc", position, width)
    if len(sizes) > 2:
        row = context.apply("remainder", row, height)
    return row, context.apply("remainder", position, width)
