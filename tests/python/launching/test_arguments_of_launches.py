# SPDX-License-Identifier: Apache-2.0
"""What kernels for the CPU are launched with: pointers, numbers, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from cpu_kernels import agree, of_text, randn

import hostjit

SCALE = of_text()
RANGED = of_text("ranged", over_range=True)


def test_null_pointers() -> None:
    source = """define void @f(ptr %y, ptr %x) {
      %is_null = icmp eq ptr %x, null
      %v = select i1 %is_null, float 1.0, float 2.0
      store float %v, ptr %y
      ret void
    }"""
    kernel = hostjit.kernel(source, "f", language="llvm_ir", writes=[0])

    def f(x: torch.Tensor) -> torch.Tensor:
        y, z = torch.zeros(1), torch.zeros(1)
        hostjit.launch(kernel, 1, (y, None))
        hostjit.launch(kernel, 1, (z, x))
        return torch.cat([y, z])

    assert agree(f, lambda: (randn(1),))(randn(1)).tolist() == [1, 2]


INTEGERS = hostjit.kernel(
    """define void @f(ptr %y, i8 %a, i16 %b, i32 %c, i64 %d, float %e, double %g) {
      %a1 = sext i8 %a to i64
      %b1 = sext i16 %b to i64
      %c1 = sext i32 %c to i64
      %e1 = fptosi float %e to i64
      %g1 = fptosi double %g to i64
      store i64 %a1, ptr %y
      %p1 = getelementptr i64, ptr %y, i64 1
      store i64 %b1, ptr %p1
      %p2 = getelementptr i64, ptr %y, i64 2
      store i64 %c1, ptr %p2
      %p3 = getelementptr i64, ptr %y, i64 3
      store i64 %d, ptr %p3
      %p4 = getelementptr i64, ptr %y, i64 4
      store i64 %e1, ptr %p4
      %p5 = getelementptr i64, ptr %y, i64 5
      store i64 %g1, ptr %p5
      ret void
    }""",
    "f",
    parameters=["i64*", "i8", "i16", "i32", "i64", "f32", "f64"],
    writes=[0],
    language="llvm_ir",
)


def test_numbers_of_every_type() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(6, dtype=torch.int64)
        hostjit.launch(INTEGERS, 1, (y, -2, 300, x.shape[0] - 100, -(1 << 40), 1.5, 7))
        return y

    assert agree(f, lambda: (randn(3),))(randn(3)).tolist() == [-2, 300, -97, -(1 << 40), 1, 7]


def test_a_number_that_its_parameter_does_not_hold() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(6, dtype=torch.int64)
        hostjit.launch(INTEGERS, 1, (y, x.shape[0], 0, 0, 0, 0.0, 0.0))
        return y

    big, small = randn(256), randn(255)
    for run in (
        f,
        hostjit.compile(f, dynamic=True, fallback=False),
        hostjit.compile(f, dynamic=True, fallback=False, runtime="evaluator"),
    ):
        assert run(small)[0] == -1
        with pytest.raises(hostjit.Error, match="parameter 1 is 256, which its type does not hold"):
            run(big)
        assert run(small)[0] == -1


@pytest.mark.parametrize(
    ("kernel", "grid", "args", "options", "error", "message"),
    [
        (SCALE, 1, (1,), {}, TypeError, "takes 4 arguments, got 1"),
        (SCALE, 1, (1, 1, 1.0, 1), {}, TypeError, "argument 0 is a int, expected a tensor"),
        (SCALE, 1, (torch.ones(4), torch.ones(4), 1.0, 1.5), {}, TypeError, "expected an integer"),
        (SCALE, 1, (torch.ones(4, device="meta"), None, 1.0, 1), {}, ValueError, "is on meta"),
        (SCALE, 1, (torch.ones(4, 4).t(), None, 1.0, 1), {}, ValueError, r"has strides \(1, 4\)"),
        (
            INTEGERS,
            1,
            (torch.ones(6), 1, 1, 1, 1, 1.0, 1.0),
            {},
            ValueError,
            "argument 0 is a tensor of torch.float32, expected torch.int64",
        ),
        (SCALE, 2, (torch.ones(4), None, 1.0, 1), {}, ValueError, "grid is 2, expected 1, for one"),
        (SCALE, 1, (torch.ones(4), None, 1.0, 1), {"block": 4}, ValueError, "it takes no block"),
        (RANGED, (2, 2), (torch.ones(4), None, 1.0, 1), {}, ValueError, "expected one number of"),
        (RANGED, -1, (torch.ones(4), None, 1.0, 1), {}, ValueError, "grid is \\(-1, 1, 1\\)"),
        (RANGED, 1, (torch.ones(4), None, 1.0, 1), {"block": 0}, ValueError, "block is \\(0, 1, 1"),
        (
            SCALE,
            1,
            (torch.ones(4), None, 1.0, 1),
            {"shared_memory": 8},
            ValueError,
            "runs on the CPU, where launches have no shared_memory",
        ),
        (
            SCALE,
            1,
            (torch.ones(4, requires_grad=True), None, 1.0, 1),
            {},
            RuntimeError,
            "requires a gradient",
        ),
    ],
)
def test_launches_that_do_not_fit(
    kernel: Any, grid: Any, args: Any, options: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        hostjit.launch(kernel, grid, args, **options)


def test_strided_kernels_know_their_strides() -> None:
    source = """define void @f(ptr %y, ptr %x, i64 %stride) {
      %p = getelementptr float, ptr %x, i64 %stride
      %v = load float, ptr %p
      store float %v, ptr %y
      ret void
    }"""
    kernel = hostjit.kernel(source, "f", language="llvm_ir", writes=[0], strided=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        y, t = torch.zeros(1), x.t()
        hostjit.launch(kernel, 1, (y, t, t.stride(0)))
        return y

    x = randn(3, 4)
    assert agree(f, lambda: (x,))(x) == x.t()[1, 0]


def test_transposes_are_refused_in_compiled_functions() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        hostjit.launch(SCALE, 1, (y, x.t(), 2.0, x.numel()))
        return y

    for dynamic in (False, True):
        with pytest.raises((hostjit.CaptureError, ValueError), match="argument 1 has strides"):
            hostjit.compile(f, dynamic=dynamic, fallback=False)(randn(3, 4))


def test_arrays_of_numpy() -> None:
    x = np.arange(4, dtype=np.float32)
    y = np.zeros(4, np.float32)
    x.flags.writeable = False
    hostjit.launch(SCALE, 1, (y, x, 2.0, 4))
    assert y.tolist() == [0, 2, 4, 6]
    with pytest.raises(ValueError, match="argument 0 is read-only, and the kernel writes it"):
        hostjit.launch(SCALE, 1, (x, y, 2.0, 4))


def test_lazy_conjugates_are_resolved() -> None:
    source = """define void @f(ptr %y, ptr %x) {
      %v = load <2 x float>, ptr %x, align 4
      store <2 x float> %v, ptr %y, align 4
      ret void
    }"""
    kernel = hostjit.kernel(
        source, "f", language="llvm_ir", parameters=["c64*", "c64*"], writes=[0]
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        hostjit.launch(kernel, 1, (y, (x * 2).conj()))
        return y

    x = torch.tensor([1 + 2j])
    assert agree(f, lambda: (x.clone(),))(x).tolist() == [2 - 4j]
