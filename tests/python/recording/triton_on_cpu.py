# SPDX-License-Identifier: Apache-2.0
"""What the kernels of `triton_recordings` do, on the CPU: as Triton's driver, and for replays."""

from __future__ import annotations

from typing import Any

from triton_driver import Launch

from hostjit.launching.providers import code_of
from hostjit.launching.triton_kernels import TritonLaunch
from hostjit.launching.user_kernel import Kernel

__all__ = ["EMULATIONS", "launch_on_cpu"]

# For each block of 128: out = x + scale * y.
ADD = """
define void @add(ptr %x, ptr %y, ptr %out, i32 %n, float %scale, i64 %begin, i64 %end) {
entry:
  %first = mul i64 %begin, 128
  %past = mul i64 %end, 128
  %count = sext i32 %n to i64
  %is_last = icmp slt i64 %count, %past
  %last = select i1 %is_last, i64 %count, i64 %past
  %some = icmp slt i64 %first, %last
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [%first, %entry], [%next, %loop]
  %px = getelementptr float, ptr %x, i64 %i
  %py = getelementptr float, ptr %y, i64 %i
  %po = getelementptr float, ptr %out, i64 %i
  %vx = load float, ptr %px
  %vy = load float, ptr %py
  %s = fmul float %vy, %scale
  %v = fadd float %vx, %s
  store float %v, ptr %po
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %last
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""
# It doubles all, whatever its grid is.
MULTIPLY = """
define void @multiply(ptr %x, ptr %out, i32 %n, i64 %begin, i64 %end) {
entry:
  %count = sext i32 %n to i64
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %px = getelementptr float, ptr %x, i64 %i
  %po = getelementptr float, ptr %out, i64 %i
  %v = load float, ptr %px
  %s = fadd float %v, %v
  store float %s, ptr %po
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def _kernel(text: str, name: str, parameters: tuple[str, ...], writes: tuple[int, ...]) -> Kernel:
    code = code_of(text, name, "llvm_ir", parameters=parameters, over_range=True)
    return Kernel(code, parameters, writes, (1 << 62, 1, 1), 0, over_range=True, strided=True)


_ON_CPU = {
    "add": _kernel(ADD, "add", ("ptr", "ptr", "ptr", "i32", "f32"), (2,)),
    "multiply": _kernel(MULTIPLY, "multiply", ("ptr", "ptr", "i32"), (1,)),
}


def launch_on_cpu(
    compiled: Any, signature: dict[str, str], written: tuple[str, ...]
) -> TritonLaunch:
    """As `triton_kernels.launch_of`, with a kernel for the CPU."""
    assert written == ("out",)
    names = tuple(name for name, type_ in signature.items() if type_ != "constexpr")
    kernel = _ON_CPU[compiled.src.fn.__name__]
    return TritonLaunch(kernel, names, 1, False, False, 0, 0)


def _emulate_add(launch: Launch) -> None:
    given = launch.arguments
    given["out"].copy_(given["x"] + given["scale"] * given["y"])


def _emulate_multiply(launch: Launch) -> None:
    launch.arguments["out"].copy_(2 * launch.arguments["x"])


EMULATIONS = {"add": _emulate_add, "multiply": _emulate_multiply}
