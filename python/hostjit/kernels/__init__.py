# SPDX-License-Identifier: Apache-2.0
"""Kernels for the CPU, written as LLVM IR text.

`KernelBuilder` makes a `PointwiseKernel`; `llvm_ir` writes it. Nothing here needs the C++ core.
"""

from hostjit.kernels.builder import KernelBuilder
from hostjit.kernels.codegen import llvm_ir, num_items
from hostjit.kernels.cost import estimated_nanoseconds, nanoseconds_per_point
from hostjit.kernels.dtypes import DType
from hostjit.kernels.expression import PointwiseKernel
from hostjit.kernels.in_place import in_place_pairs, is_read_before_it_is_written
from hostjit.kernels.operation import OPERATIONS, result_dtype
from hostjit.kernels.split_row import SplitRow, split_row
from hostjit.kernels.vector_math import VECTOR_MATH, VectorMathFunction

__all__ = [
    "OPERATIONS",
    "VECTOR_MATH",
    "DType",
    "KernelBuilder",
    "PointwiseKernel",
    "SplitRow",
    "VectorMathFunction",
    "estimated_nanoseconds",
    "in_place_pairs",
    "is_read_before_it_is_written",
    "llvm_ir",
    "nanoseconds_per_point",
    "num_items",
    "result_dtype",
    "split_row",
]
