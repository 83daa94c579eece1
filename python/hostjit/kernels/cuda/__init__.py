# SPDX-License-Identifier: Apache-2.0
"""Kernels for NVIDIA GPUs, written as CUDA C++ and compiled by NVRTC."""

from hostjit.kernels.cuda.kernel import CudaKernel, cuda_kernel
from hostjit.kernels.cuda.nvrtc import compile_ptx

__all__ = ["CudaKernel", "compile_ptx", "cuda_kernel"]
