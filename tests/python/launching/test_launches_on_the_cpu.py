# SPDX-License-Identifier: Apache-2.0
"""`hostjit.launch` on the CPU: eagerly and in compiled functions, which have to agree."""

from __future__ import annotations

import ctypes
import gc
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cpu_kernels import WORDS, build_scale, c_scale, of_text

import hostjit
from hostjit import _C

SCALE = of_text()
ADD = of_text("add", "fadd")
RANGED = of_text("ranged", over_range=True)


def kernels() -> list[Any]:
    names = {"text": SCALE, "built": hostjit.kernel(build_scale, parameters=WORDS, writes=[0])}
    names["c"] = hostjit.kernel(c_scale(), writes=[0])
    return [pytest.param(kernel, id=name) for name, kernel in names.items()]


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
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kernel", kernels())
def test_between_other_kernels(kernel: hostjit.Kernel) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(kernel, 1, (y, x + 1, 0.5, x.numel()))
        return torch.relu(y) * 2

    fast = agree(f, lambda: (randn(4, 5),))
    assert "launch_kernel" in fast.host_ir() and "copy(" not in fast.host_ir()


def test_small_kernels_are_inlined() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x, 0.5, 16))
        return y

    fast = agree(f, lambda: (randn(16),))
    assert ".kernel." not in "".join(re.findall("call .*", fast.llvm_ir()))
    assert ".kernel." not in fast.asm() and "fmul" in fast.llvm_ir()


def test_c_functions_are_called_directly() -> None:
    kernel = hostjit.kernel(c_scale(), writes=[0])

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(kernel, 1, (y, x, 0.5, 16))
        return y

    fast = agree(f, lambda: (randn(16),))
    assert f'call void @"c_function:{kernel.name}"(' in fast.llvm_ir()
    assert 'c_function(entry="function", parameters=[ptr, ptr, f32, i64]) "0x' in fast.host_ir()
    with pytest.raises(hostjit.Error, match="is a c_function of the process that printed it"):
        hostjit.ir.parse(fast.host_ir())


def test_programs_with_llvm_ir_are_text() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x, 0.5, 8))
        return y

    written = agree(f, lambda: (randn(8),)).host_ir()
    assert 'llvm_ir(entry="scale", parameters=[ptr, ptr, f32, i64])' in written
    program = hostjit.ir.parse(written)
    assert str(program) == str(hostjit.ir.parse(str(program)))


def test_an_input_is_written_in_place() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(SCALE, 1, (x, x, 0.5, x.numel()))
        hostjit.launch(SCALE, 1, (x, x, 0.25, x.numel()))
        return x + 1

    fast = agree(f, lambda: (randn(30),))
    assert fast.host_ir().count("launch_kernel") == 3 and "copy(" not in fast.host_ir()


def test_what_is_still_read_is_kept() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x * 2
        kept = h.clone()
        hostjit.launch(SCALE, 1, (h, h, 0.5, x.numel()))
        return h, kept

    agree(f, lambda: (randn(30),))


def test_rows_of_one_tensor() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(8, 8)
        hostjit.launch(SCALE, 1, (table[2], x, 2.0, 8))
        hostjit.launch(SCALE, 1, (table[3], table[2], 3.0, 8))
        return table

    agree(f, lambda: (randn(8),))


def test_two_kernels_with_a_helper_of_one_name() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y, z = torch.empty_like(x), torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x, 3.0, x.numel()))
        hostjit.launch(ADD, 1, (z, y, 3.0, x.numel()))
        return z

    x = randn(20)
    fast = agree(f, lambda: (x.clone(),))
    torch.testing.assert_close(fast(x), x * 3 + 3)


def test_constants_intrinsics_and_names_of_libraries() -> None:
    source = """
    @table = constant [2 x float] [float 2.0, float 3.0]
    @also = alias [2 x float], ptr @table
    declare float @llvm.sqrt.f32(float)
    declare float @hostjit_exp_f32(float)
    define float @expf(float %v) noinline {
      %r = call float @llvm.sqrt.f32(float %v)
      ret float %r
    }
    define void @f(ptr %y) "target-cpu"="x86-64" #0 {
      %v = load float, ptr %y
      %p = getelementptr float, ptr @also, i64 1
      %three = load float, ptr %p
      %r = call float @expf(float %v)
      %e = call float @hostjit_exp_f32(float %r)
      %s = fmul float %e, %three
      store float %s, ptr %y
      ret void
    }
    attributes #0 = { sspstrong uwtable "tune-cpu"="generic" }
    !llvm.module.flags = !{!0, !1}
    !llvm.ident = !{!2}
    !0 = !{i32 1, !"wchar_size", i32 2}
    !1 = !{i32 8, !"PIC Level", i32 0}
    !2 = !{!"a compiler"}
    """
    first = hostjit.kernel(source, "f", language="llvm_ir", writes=[0])
    second = hostjit.kernel(
        source.replace("3.0", "5.0").replace("i32 2}", "i32 4}"),
        "f",
        language="llvm_ir",
        writes=[0],
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(first, 1, (x,))
        y = torch.exp(x)
        hostjit.launch(second, 1, (y,))
        return y

    x = torch.full((1,), 0.25)
    fast = agree(f, lambda: (x.clone(),))
    expected = torch.exp(torch.exp(torch.exp(x.sqrt()) * 3).sqrt()) * 5
    torch.testing.assert_close(fast(x.clone()), expected)


def test_open_sizes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x, 0.5, x.numel()))
        hostjit.launch(RANGED, x.numel(), (y, y, 2.0, x.numel()))
        hostjit.launch(RANGED, x.numel(), (y, y, 2.0, x.numel()), block=100)
        return y + 1

    fast = hostjit.compile(f, dynamic=True, fallback=False)
    for size in (4, 9, 1000, 20000):
        x = randn(size, 3)
        assert torch.equal(fast(x), x * 2 + 1)
    assert fast.host_ir().count("program @") == 1


@pytest.mark.parametrize("size", [0, 1, 7, 5000])
@pytest.mark.parametrize("block", [None, 1000])
def test_ranges_of_items(size: int, block: int | None) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        hostjit.launch(RANGED, (x.numel(),), (y, x, 2.0, 0), block=block)
        return y

    fast = agree(f, lambda: (randn(size),))
    is_divided = size == 5000 and block is not None
    assert ("hostjit_parallel_for" in fast.llvm_ir()) == is_divided


def test_a_range_is_divided_among_threads() -> None:
    found: list[tuple[int, int, int]] = []

    def note(_: Any, begin: int, end: int) -> None:
        found.append((begin, end, threading.get_ident()))

    types = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    kernel = hostjit.kernel(
        ctypes.CFUNCTYPE(None, *types)(note), writes=[0], over_range=True, block=10
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(kernel, 100, (x,))
        return x + 1

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for run in (f, hostjit.compile(f, fallback=False)):
            found.clear()
            run(torch.zeros(100))
            assert sorted(part[:2] for part in found) == [(0, 50), (50, 100)]
            assert len({part[2] for part in found}) == 2
    finally:
        torch.set_num_threads(before)


def test_a_grid_of_zero_does_not_run() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(SCALE, 0, (x, x, 2.0, x.numel()))
        return x + 1

    fast = agree(f, lambda: (randn(5),))
    assert fast.host_ir().count("launch_kernel") == 1


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


def test_versions_count() -> None:
    x = torch.ones(4)
    before = x._version
    hostjit.launch(SCALE, 1, (x, x, 2.0, 4))
    assert x._version > before


def test_torch_compile() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x * 2, 0.5, x.numel()))
        return y + 1

    x = randn(6)
    with torch.no_grad():
        assert torch.equal(torch.compile(f, backend="hostjit", fullgraph=True)(x), x + 1)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x, 3.0, x.numel()))
        return y

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        y = torch.empty_like(gradient)
        hostjit.launch(SCALE, 1, (y, gradient.contiguous(), 3.0, gradient.numel()))
        return y


def test_both_directions() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = Scale.apply(x * w)
        return (y * y).sum()

    x, w = randn(5), randn(5).requires_grad_()
    f(x, w).backward()
    expected, w.grad = w.grad, None
    hostjit.compile(f, fallback=False)(x, w).backward()
    torch.testing.assert_close(w.grad, expected)


def test_a_c_function_lives_as_long_as_its_program() -> None:
    function = c_scale()
    gone = weakref.ref(function)
    kernel = hostjit.kernel(function, writes=[0])
    program = _C.Program("p")
    kernel.add_to(program, "k", kernel.types)
    copy = program.clone()
    del kernel, function, program
    gc.collect()
    assert gone() is not None
    del copy
    gc.collect()
    assert gone() is None


def test_compiled_code_keeps_what_it_calls() -> None:
    def make() -> tuple[Any, Any]:
        kernel = hostjit.kernel(c_scale(plus=1.0), writes=[0])
        holder = [kernel]

        def f(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            hostjit.launch(holder[0], 1, (y, x, 2.0, x.numel()))
            return y

        fast = hostjit.compile(f, fallback=False)
        assert fast(torch.ones(2)).tolist() == [3, 3]
        return fast, holder

    fast, holder = make()
    holder[0] = SCALE
    gc.collect()
    assert fast(torch.ones(2)).tolist() == [2, 2]


def test_the_cache_has_no_address(tmp_path: Path) -> None:
    def make(plus: float) -> Any:
        kernel = hostjit.kernel(c_scale(plus=plus), writes=[0])

        def f(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            hostjit.launch(kernel, 1, (y, x, 2.0, x.numel()))
            return y

        return f

    x = randn(4)
    with hostjit.knobs(cache_directory=str(tmp_path / "cache")):
        for plus, hits in ((0.0, 0), (1.0, 1), (2.0, 1)):
            before = hostjit.cache.report()["hits"]
            assert torch.equal(hostjit.compile(make(plus), fallback=False)(x), x * 2 + plus)
            assert hostjit.cache.report()["hits"] - before == hits


def test_c_functions_of_one_form_in_one_program() -> None:
    plain, more = (hostjit.kernel(c_scale(plus=plus), writes=[0]) for plus in (0.0, 1.0))

    def f(x: torch.Tensor) -> torch.Tensor:
        y, z = torch.empty_like(x), torch.empty_like(x)
        hostjit.launch(plain, 1, (y, x, 2.0, x.numel()))
        hostjit.launch(more, 1, (z, y, 2.0, x.numel()))
        return z

    x = randn(4)
    assert torch.equal(agree(f, lambda: (x.clone(),))(x), x * 4 + 1)


def test_from_several_threads() -> None:
    kernel = hostjit.kernel(c_scale(), writes=[0])

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(kernel, 1, (y, x, 2.0, x.numel()))
        return y

    fast = hostjit.compile(f, fallback=False)
    fast(torch.ones(64))
    results: list[bool] = []

    def work(number: int) -> None:
        x = torch.full((64,), float(number))
        results.extend(bool(torch.equal(fast(x), x * 2)) for _ in range(50))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200 and all(results)
