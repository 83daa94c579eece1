# SPDX-License-Identifier: Apache-2.0
"""Runs CUDA kernels on the CPU: the same source, compiled by g++ for an emulated device."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from cuda_launch import evaluate

from hostjit.kernels import PointwiseKernel
from hostjit.kernels.cuda import CudaKernel, cuda_kernel
from hostjit.kernels.cuda.c_text import prelude

HERE = Path(__file__).parent
# A fault of an instruction stops the process: better than a wrong answer.
_FLAGS = (
    *("-std=c++17", "-O1", "-shared", "-fPIC", "-w", "-ffp-contract=off"),
    "-fsanitize=alignment,bounds,signed-integer-overflow,integer-divide-by-zero",
    "-fsanitize-undefined-trap-on-error",
)
_TYPES = {"ptr": ctypes.c_void_p, "i64": ctypes.c_int64, "f64": ctypes.c_double}


class EmulatedKernel:
    """A kernel of a library: call it with inputs, outputs, scalars, then sizes."""

    def __init__(self, kernel: PointwiseKernel, written: CudaKernel, library: ctypes.CDLL) -> None:
        self.symbols = kernel.symbols()
        self.written = written
        self._run = getattr(library, f"run_{written.entry}")
        self._run.restype = ctypes.c_char_p

    def __call__(self, *arguments: torch.Tensor | float) -> None:
        numbers = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
        typed = zip(self.written.parameters, numbers, strict=True)
        values = [_TYPES[type_](number) for type_, number in typed]
        addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        known = dict(zip(self.symbols, numbers[len(numbers) - len(self.symbols) :], strict=True))
        blocks, *others = (evaluate(size, known) for size in self.written.grid)
        assert others == [1, 1] and self.written.block[1:] == (1, 1)
        failure = self._run(blocks, self.written.block[0], addresses)
        if failure:
            raise RuntimeError(failure.decode())


def emulated(kernels: Iterable[PointwiseKernel]) -> list[EmulatedKernel]:
    """Compile kernels, whose names differ, all at once."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ to compile emulated kernels")
    kernels = list(kernels)
    written = [cuda_kernel(kernel) for kernel in kernels]
    assert len({kernel.entry for kernel in written}) == len(written)
    texts = ['#include "emulated_device.h"', prelude(), '#include "emulated_conversions.h"']
    for kernel in written:
        texts.append(kernel.source)
        texts.append(
            f'extern "C" const char* run_{kernel.entry}(unsigned grid, unsigned block, void** v) {{'
            f" return emulation::launch(hostjit::{kernel.entry}, grid, block, v); }}"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text("\n".join(texts))
        command = [compiler, *_FLAGS, f"-I{HERE}", str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        loaded = ctypes.CDLL(str(library))
    pairs = zip(kernels, written, strict=True)
    return [EmulatedKernel(kernel, one, loaded) for kernel, one in pairs]
