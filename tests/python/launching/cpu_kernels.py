# SPDX-License-Identifier: Apache-2.0
"""Kernels for the CPU that tests launch, y[i] = a * x[i], and how their launches are compared."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from llvmlite import ir  # type: ignore[import-untyped]

import hostjit

WORDS = ("f32*", "f32*", "f32", "i64")
TEXT = """
define void @NAME(ptr %y, ptr %x, float %a, i64 %n RANGE) {
entry:
  %some = icmp slt i64 BEGIN, END
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [BEGIN, %entry], [%next, %loop]
  %px = getelementptr inbounds float, ptr %x, i64 %i
  %py = getelementptr inbounds float, ptr %y, i64 %i
  %v = load float, ptr %px
  %s = call float @multiplied(float %v, float %a)
  store float %s, ptr %py
  %next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %next, END
  br i1 %more, label %loop, label %done
done:
  ret void
}
define float @multiplied(float %v, float %a) {
  %s = OPERATION float %v, %a
  ret float %s
}
"""


def text(name: str = "scale", operation: str = "fmul", *, over_range: bool = False) -> str:
    """LLVM IR of a function that scales, or adds, with a helper of the same name in each."""
    replaced = TEXT.replace("NAME", name).replace("OPERATION", operation)
    if over_range:
        replaced = replaced.replace("RANGE", ", i64 %begin, i64 %end")
        return replaced.replace("BEGIN", "%begin").replace("END", "%end")
    return replaced.replace("RANGE", "").replace("BEGIN", "0").replace("END", "%n")


def of_text(name: str = "scale", operation: str = "fmul", **options: Any) -> hostjit.Kernel:
    """The kernel that `text` is."""
    over_range = options.get("over_range", False)
    source = text(name, operation, over_range=over_range)
    return hostjit.kernel(source, name, language="llvm_ir", writes=[0], **options)


def build_scale(builder: Any, y: Any, x: Any, a: Any, n: Any) -> None:
    """The body of the kernel, by llvmlite.ir."""
    function = builder.function
    loop, done = (function.append_basic_block(name) for name in ("loop", "done"))
    entry = builder.block
    zero = ir.Constant(ir.IntType(64), 0)
    builder.cbranch(builder.icmp_signed("<", zero, n), loop, done)
    builder.position_at_end(loop)
    i = builder.phi(ir.IntType(64))
    i.add_incoming(zero, entry)
    v = builder.load(builder.gep(x, [i], source_etype=ir.FloatType()), typ=ir.FloatType())
    builder.store(builder.fmul(v, a), builder.gep(y, [i], source_etype=ir.FloatType()))
    following = builder.add(i, ir.Constant(ir.IntType(64), 1))
    i.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, n), loop, done)
    builder.position_at_end(done)


FLOATS = ctypes.POINTER(ctypes.c_float)
SCALE_TYPE = ctypes.CFUNCTYPE(None, FLOATS, FLOATS, ctypes.c_float, ctypes.c_int64)


def c_scale(*, plus: float = 0.0) -> Any:
    """A C function, which calls Python: y[i] = a * x[i] + plus."""

    def scale(y: Any, x: Any, a: float, n: int) -> None:
        for i in range(n):
            y[i] = a * x[i] + plus

    return SCALE_TYPE(scale)


def agree(f: Callable[..., Any], make: Callable[[], tuple[torch.Tensor, ...]], **how: Any) -> Any:
    """Compare eager mode with both runtimes, and return what the JIT has."""
    expected_inputs = make()
    expected = f(*expected_inputs)
    for runtime in ("evaluator", "jit"):
        fast = hostjit.compile(f, runtime=runtime, fallback=False, **how)
        for _ in range(2):
            inputs = make()
            torch.testing.assert_close(fast(*inputs), expected, rtol=0, atol=0)
            torch.testing.assert_close(inputs, expected_inputs, rtol=0, atol=0)
    return fast


def randn(*sizes: int) -> torch.Tensor:
    """The same random numbers at every call."""
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(1))
