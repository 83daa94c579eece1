# SPDX-License-Identifier: Apache-2.0
"""Kernels for NVIDIA GPUs, written as CUDA C++ and compiled by NVRTC."""

from hostjit.kernels.cuda.kernel import CudaKernel, cuda_kernel, is_turned
from hostjit.kernels.cuda.long_rows import Buffer, Launches, Step, split_long_rows
from hostjit.kernels.cuda.nvrtc import compile_ptx

__all__ = [
    "Buffer",
    "CudaKernel",
    "Launches",
    "Step",
    "compile_ptx",
    "cuda_kernel",
    "is_turned",
    "split_long_rows",
]
