# SPDX-License-Identifier: Apache-2.0
"""The launch of a kernel on a CUDA device, and the compilation of those that a program launches."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from hostjit import _C
from hostjit.kernels import PointwiseKernel
from hostjit.kernels.cuda import CudaKernel, compile_ptx, cuda_kernel
from hostjit.lowering.context import LoweringContext

if TYPE_CHECKING:
    from hostjit.launching import Kernel

__all__ = ["add_kernels", "add_user_kernels", "architecture", "launch_on_cuda"]

# PTX for it runs on every later device, too.
_OLDEST = (8, 0)


def launch_on_cuda(
    context: LoweringContext,
    kernel: PointwiseKernel,
    inputs: list[_C.Value],
    outputs: list[_C.Value],
    num_in_out: int,
    numbers: Mapping[str, _C.Value],
) -> None:
    """Launch a kernel on the device of its operands, as `launch` says.

    `add_kernels` adds it to the program.
    """
    if 0 in kernel.shape:
        return
    name = f"{kernel.name}_cuda"
    if name not in context.cuda_kernels:
        context.cuda_kernels[name] = cuda_kernel(kernel)
    written = context.cuda_kernels[name]
    context.create(
        "launch_kernel",
        {
            "kernel": name,
            "inputs": inputs,
            "in_out": outputs[:num_in_out],
            "outputs": outputs[num_in_out:],
            "scalars": context.scalars(kernel, numbers),
            "grid": [context.indices.number(size) for size in written.grid],
            "block": list(written.block),
            "shared_memory": written.shared_memory,
        },
    )


def add_kernels(program: _C.Program, kernels: Mapping[str, CudaKernel]) -> None:
    """Compile kernels, side by side, and add them to the program that launches them."""
    if not kernels:
        return
    arch = architecture()
    with ThreadPoolExecutor(min(len(kernels), os.cpu_count() or 1)) as pool:
        compiled = pool.map(lambda kernel: compile_ptx(kernel.source, arch), kernels.values())
        for (name, kernel), ptx in zip(kernels.items(), compiled, strict=True):
            program.add_kernel(
                name, ptx, language="ptx", entry=kernel.entry, parameters=list(kernel.parameters)
            )


def add_user_kernels(
    program: _C.Program, kernels: Mapping[str, tuple[Kernel, tuple[str, ...]]]
) -> None:
    """Add kernels that the user brings to the program that launches them."""
    for name, (kernel, types) in kernels.items():
        kernel.add_to(program, name, types)


@functools.cache
def architecture() -> str:
    """What PTX is written for: the least capable device, so that a program may run on each."""
    counted = range(torch.cuda.device_count())
    major, minor = min((torch.cuda.get_device_capability(n) for n in counted), default=_OLDEST)
    return f"sm_{major}{minor}"
