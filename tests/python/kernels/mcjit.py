# SPDX-License-Identifier: Apache-2.0
"""Runs kernels on tensors without the core: llvmlite's MCJIT, Sleef from libtorch_cpu."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import torch

from hostjit.kernels import VECTOR_MATH, DType, PointwiseKernel, llvm_ir

TORCH_DTYPES = {
    DType.F64: torch.float64,
    DType.F32: torch.float32,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.I64: torch.int64,
    DType.I32: torch.int32,
    DType.I16: torch.int16,
    DType.I8: torch.int8,
    DType.U8: torch.uint8,
    DType.BOOL: torch.bool,
}

_VARIANTS = "vector-function-abi-variant"
_LANES = {"f32": (16, 8), "f64": (8, 4)}


@cache
def define_symbols() -> None:
    """Make the vector-math symbols known to the JIT."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    torch_cpu = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    libm = ctypes.CDLL("libm.so.6")

    def define(symbol: str, library: ctypes.CDLL, source: str) -> None:
        address = ctypes.cast(getattr(library, source), ctypes.c_void_p).value
        llvm.add_symbol(symbol, address)

    for function in VECTOR_MATH.values():
        for dtype in _LANES:
            define(function.symbol(dtype), libm, function.name + ("f" if dtype == "f32" else ""))
            for vector in [function.sleef_symbol(dtype, count) for count in sleef_lanes(dtype)]:
                define(vector, torch_cpu, vector)


def target_machine(optimise: bool = True) -> llvm.TargetMachine:
    """A new target machine for the host; an engine takes ownership of the one it is given."""
    define_symbols()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    if "avx512vbmi2" in host_features():  # as the core does
        features += ",-prefer-256-bit"
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2 if optimise else 0, jit=True
    )


@cache
def host_features() -> frozenset[str]:
    features = llvm.get_host_cpu_features()
    return frozenset(name for name, present in features.items() if present)


def sleef_lanes(dtype: str) -> tuple[int, ...]:
    """Return of how many elements Sleef's functions are that this CPU has, as in the core."""
    wide = _LANES[dtype]
    if "avx512f" in host_features():
        return wide
    return wide[1:] if {"avx2", "fma"} <= host_features() else ()


def vectors_of(lanes: int, kind: str) -> list[str]:
    """Return the types in LLVM IR of vectors that fill 512 bits, or 256 where LLVM keeps to these.

    That is on Intel's CPUs before Ice Lake, but for code around functions of 512 bits.
    """
    whole = f"<{lanes} x {kind}>"
    return [whole] if "avx512vbmi2" in host_features() else [whole, f"<{lanes // 2} x {kind}>"]


def with_sleef(text: str) -> str:
    """Attach Sleef's vector forms to the declarations of a kernel, as the core does."""
    vectors: list[str] = []
    for function in VECTOR_MATH.values():
        for dtype in _LANES:
            symbol = function.symbol(dtype)
            scalar = {"f32": "float", "f64": "double"}[dtype]
            forms = [(lanes, function.sleef_symbol(dtype, lanes)) for lanes in sleef_lanes(dtype)]
            variants = ",".join(
                f"_ZGV_LLVM_N{lanes}{'v' * function.arity}_{symbol}({vector})"
                for lanes, vector in forms
            )
            attributes = f'nounwind willreturn memory(none) "{_VARIANTS}"="{variants}"'
            pattern = rf'^(declare {scalar} @"{symbol}"\(.*\))$'
            text, count = re.subn(pattern, rf"\1 {attributes}", text, flags=re.MULTILINE)
            for lanes, vector in forms if count else ():
                wide = f"<{lanes} x {scalar}>"
                text += f"declare {wide} @{vector}({', '.join([wide] * function.arity)})\n"
                vectors.append(f"ptr @{vector}")
    if vectors:
        text += (
            f"@llvm.compiler.used = appending global [{len(vectors)} x ptr] "
            f'[{", ".join(vectors)}], section "llvm.metadata"\n'
        )
    return text


def optimised(text: str, optimise: bool = True) -> llvm.ModuleRef:
    """Parse, verify and (if asked) optimise a kernel's text for this machine."""
    machine = target_machine()
    header = f'target triple = "{machine.triple}"\ntarget datalayout = "{machine.target_data}"\n'
    module = llvm.parse_assembly(header + with_sleef(text))
    module.verify()
    if not optimise:
        return module
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


class CompiledKernel:
    """A kernel that can be called with tensors: inputs, then outputs, then scalars, then sizes.

    `optimise=False` is for tests of meaning, where compiling takes most of the time.
    """

    def __init__(self, kernel: PointwiseKernel, *, optimise: bool = True) -> None:
        self.kernel = kernel
        self.module = optimised(llvm_ir(kernel), optimise)
        self.text = str(self.module)
        self.engine = llvm.create_mcjit_compiler(self.module, target_machine(optimise))
        self.engine.finalize_object()
        scalars = [
            ctypes.c_double if scalar.dtype is DType.F64 else ctypes.c_int64
            for scalar in kernel.scalars()
        ]
        scalars += [ctypes.c_int64] * len(kernel.symbols())
        scalars += [ctypes.c_void_p] if kernel.errors() else []
        pointers = [ctypes.c_void_p] * (len(kernel.inputs) + len(kernel.outputs))
        address = self.engine.get_function_address(kernel.name)
        self.function = ctypes.CFUNCTYPE(None, *pointers, *scalars)(address)

    def __call__(self, *arguments: torch.Tensor | float) -> None:
        operands = (*self.kernel.inputs, *self.kernel.outputs)
        for argument, operand in zip(arguments, operands, strict=False):
            assert isinstance(argument, torch.Tensor)
            assert argument.dtype is TORCH_DTYPES[operand.dtype], (argument.dtype, operand)
        self.function(*(a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments))
