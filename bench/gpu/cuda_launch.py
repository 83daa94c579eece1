# SPDX-License-Identifier: Apache-2.0
"""Launches kernels written by `hostjit.kernels.cuda` through the driver, without the core."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from hostjit.kernels import PointwiseKernel
from hostjit.kernels.cuda import (
    Buffer,
    CudaKernel,
    Launches,
    Step,
    compile_ptx,
    cuda_kernel,
    split_long_rows,
)
from hostjit.kernels.sizes import Size, Symbol, SymbolicSize

_TYPES = {"ptr": ctypes.c_void_p, "i64": ctypes.c_int64, "f64": ctypes.c_double}


class LaunchedKernel:
    """A kernel on the current device.

    Call it with tensors: inputs, then outputs; then scalars, then the values of its symbols.
    """

    def __init__(self, kernel: CudaKernel, symbols: list[Symbol] | None = None) -> None:
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # makes the primary context current
        self.kernel = kernel
        self.symbols = symbols or []
        major, minor = torch.cuda.get_device_capability()
        ptx = compile_ptx(kernel.source, f"sm_{major}{minor}").encode()
        driver = _driver()
        module = ctypes.c_void_p()
        _check(driver.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(ptx)))
        self.function = ctypes.c_void_p()
        name = kernel.entry.encode()
        _check(driver.cuModuleGetFunction(ctypes.byref(self.function), module, name))

    def prepare(self, *arguments: torch.Tensor | float) -> Any:
        """Return a function without arguments that launches on the current stream."""
        numbers = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
        typed = zip(self.kernel.parameters, numbers, strict=True)
        values = [_TYPES[type_](number) for type_, number in typed]
        addresses = [ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values]
        pointers = (ctypes.c_void_p * len(values))(*addresses)
        first = len(numbers) - len(self.symbols)
        known = dict(zip(self.symbols, numbers[first:], strict=True))
        grid = [evaluate(size, known) for size in self.kernel.grid]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        launch = _driver().cuLaunchKernel
        shape = (*grid, *self.kernel.block, self.kernel.shared_memory)

        def run(keep: Any = (values, addresses)) -> None:
            if 0 not in grid:
                _check(launch(self.function, *shape, stream, pointers, None))

        return run

    def __call__(self, *arguments: torch.Tensor | float) -> None:
        self.prepare(*arguments)()


class LaunchedSteps:
    """A kernel, or what is launched in its place where its rows are few and long."""

    def __init__(self, kernel: PointwiseKernel) -> None:
        split = split_long_rows(kernel)
        if split is None:
            inputs = tuple(Buffer("input", n) for n in range(len(kernel.inputs)))
            outputs = tuple(Buffer("output", n) for n in range(len(kernel.outputs)))
            split = Launches((), (Step(kernel, inputs, outputs),))
        self.num_inputs = len(kernel.inputs)
        self.split = split
        self.kernels = [LaunchedKernel(cuda_kernel(step.kernel)) for step in split.steps]

    def prepare(self, *tensors: torch.Tensor) -> Any:
        """Return a function without arguments that launches the steps on the current stream."""
        buffers = {
            "input": tensors[: self.num_inputs],
            "output": tensors[self.num_inputs :],
            "temporary": [
                torch.empty(count * dtype.itemsize, dtype=torch.uint8, device="cuda")
                for dtype, count in self.split.temporaries
            ],
        }
        runs = []
        for step, kernel in zip(self.split.steps, self.kernels, strict=True):
            operands = [buffers[one.kind][one.place] for one in (*step.inputs, *step.outputs)]
            runs.append(kernel.prepare(*operands))

        def run(keep: Any = buffers) -> None:
            for one in runs:
                one()

        return run

    def __call__(self, *tensors: torch.Tensor) -> None:
        self.prepare(*tensors)()


def evaluate(size: Size, numbers: dict[Symbol, int]) -> int:
    """The number that a size is where its symbols are `numbers`."""
    if not isinstance(size, SymbolicSize):
        return size
    total = 0
    for product, factor in size.terms:
        for symbol in product:
            factor *= _symbol_value(symbol, numbers)
        total += factor
    return total


def _symbol_value(symbol: Symbol, numbers: dict[Symbol, int]) -> int:
    if symbol.definition is None:
        return numbers[symbol]
    operation, left, right = symbol.definition
    assert operation == "ceildiv", operation
    return -(-evaluate(left, numbers) // evaluate(right, numbers))


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"CUDA: {(text.value or b'').decode()} ({status})")
