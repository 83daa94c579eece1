# SPDX-License-Identifier: Apache-2.0
"""`hostjit.kernel` for the CPU: what it is made of, and what it refuses."""

from __future__ import annotations

import ctypes
import pickle
import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from cpu_kernels import SCALE_TYPE, WORDS, build_scale, c_scale, of_text, text
from llvmlite import ir  # type: ignore[import-untyped]

import hostjit


def check(kernel: hostjit.Kernel) -> None:
    """Launch it, eagerly and compiled by both runtimes."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        hostjit.launch(kernel, 1, (y, x, 2.5, x.numel()))
        return y

    x = torch.randn(37, generator=torch.Generator().manual_seed(0))
    assert torch.equal(f(x), x * 2.5)
    for runtime in ("jit", "evaluator"):
        fast = hostjit.compile(f, runtime=runtime, fallback=False)
        assert torch.equal(fast(x), x * 2.5)
        assert "aten_call" not in fast.host_ir()


def test_a_python_function_that_builds_the_body() -> None:
    made = hostjit.kernel(build_scale, parameters=WORDS, writes=[0])
    assert made.entry == "build_scale" and made.parameters == ("ptr", "ptr", "f32", "i64")
    check(made)


def test_a_decorator() -> None:
    @hostjit.kernel(parameters=["ptr", "ptr", "f32", "i64"], writes=[0])
    def scale(builder: Any, y: Any, x: Any, a: Any, n: Any) -> None:
        build_scale(builder, y, x, a, n)

    assert isinstance(scale, hostjit.Kernel) and scale.device == "cpu"
    check(scale)


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("what", ["function", "module"])
def test_what_llvmlite_has_built(what: str, typed: bool) -> None:
    module = ir.Module("built")
    pointer = ir.FloatType().as_pointer() if typed else ir.PointerType()
    types = [pointer, pointer, ir.FloatType(), ir.IntType(64)]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), types), "scale")
    builder = ir.IRBuilder(function.append_basic_block())
    build_scale(builder, *function.args)
    builder.ret_void()
    check(hostjit.kernel(function if what == "function" else module, writes=[0]))


def test_text(tmp_path: Path) -> None:
    check(of_text())
    path = tmp_path / "scale.ll"
    path.write_text(text())
    check(hostjit.kernel(path, "scale", writes=[0]))
    check(of_text(parameters=WORDS))


def test_a_c_function() -> None:
    check(hostjit.kernel(c_scale(), writes=[0]))
    function = c_scale()
    address = ctypes.cast(function, ctypes.c_void_p).value
    with pytest.raises(ValueError, match="parameters is missing"):
        hostjit.kernel(address, language="c_function", writes=[0])
    check(hostjit.kernel(address, language="c_function", parameters=WORDS, writes=[0]))


def test_a_function_of_a_library_by_its_argtypes() -> None:
    copy = ctypes.CDLL(None).memcpy
    with pytest.raises(ValueError, match="kernel 'memcpy': parameters is missing"):
        hostjit.kernel(copy, writes=[0])
    copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    kernel = hostjit.kernel(copy, writes=[0])
    assert kernel.entry == "memcpy" and kernel.parameters == ("ptr", "ptr", "i64")
    y, x = torch.zeros(2, 4), torch.randn(2, 4)
    hostjit.launch(kernel, 1, (y, x, 32))
    assert torch.equal(x, y)


class NumbaFunction:
    """As a numba.cfunc."""

    def __init__(self) -> None:
        self.ctypes = c_scale()
        self.address = ctypes.cast(self.ctypes, ctypes.c_void_p).value
        self.__name__ = "scale"


def test_a_function_of_numba() -> None:
    kernel = hostjit.kernel(NumbaFunction(), writes=[0])
    assert kernel.entry == "scale" and kernel.dtypes[:2] == (torch.float32,) * 2
    check(kernel)


def test_a_cfunc_of_numba() -> None:
    numba = pytest.importorskip("numba")
    floats = numba.types.CPointer(numba.types.float32)
    signature = numba.types.void(floats, floats, numba.types.float32, numba.types.int64)

    @numba.cfunc(signature)
    def scale(y: Any, x: Any, a: float, n: int) -> None:
        for i in range(n):
            y[i] = a * x[i]

    kernel = hostjit.kernel(scale, writes=[0])
    assert kernel.entry == "scale" and kernel.parameters == ("ptr", "ptr", "f32", "i64")
    assert kernel.dtypes == (torch.float32, torch.float32, None, None)
    check(kernel)


def test_a_function_of_cffi() -> None:
    ffi = pytest.importorskip("cffi").FFI()
    signature = "void(float *, const float *, float, long)"
    function = ffi.callback(signature, lambda y, x, a, n: c_scale()(*casts(ffi, y, x), a, n))
    kernel = hostjit.kernel(function, writes=[0])
    assert kernel.dtypes == (torch.float32, torch.float32, None, None)
    check(kernel)
    with pytest.raises(TypeError, match="int of cffi, expected a pointer to a function"):
        hostjit.kernel(ffi.cast("int", 1), writes=[0])
    with pytest.raises(TypeError, match=r"returns int, expected void"):
        hostjit.kernel(ffi.cast("int(*)(int)", 16), writes=[])


def casts(ffi: Any, *pointers: Any) -> list[Any]:
    floats = SCALE_TYPE._argtypes_[0]  # type: ignore[attr-defined]
    return [ctypes.cast(int(ffi.cast("uintptr_t", pointer)), floats) for pointer in pointers]


def test_types_of_ctypes() -> None:
    types = (
        (ctypes.POINTER(ctypes.c_uint8), "u8*"),
        (ctypes.POINTER(ctypes.c_bool), "bool*"),
        (ctypes.POINTER(ctypes.POINTER(ctypes.c_int)), "ptr"),
        (ctypes.c_void_p, "ptr"),
        (ctypes.c_uint32, "i32"),
        (ctypes.c_long, "i64"),
        (ctypes.c_double, "f64"),
    )
    function = ctypes.CFUNCTYPE(None, *(type_ for type_, _ in types))(lambda *_: None)
    assert hostjit.kernel(function, writes=[0])._words == tuple(word for _, word in types)


def test_what_travels() -> None:
    kernel = of_text(over_range=True, block=100, strided=True)
    again = pickle.loads(pickle.dumps(kernel))
    assert again.name == kernel.name and again.block == (100, 1, 1)
    assert again.over_range and again.strided and again.dtypes == kernel.dtypes
    with pytest.raises(TypeError, match="is a C function of this process"):
        pickle.dumps(hostjit.kernel(c_scale(), writes=[0]))


FOREIGN = "aarch64-linux-gnu" if platform.machine() == "x86_64" else "x86_64-linux-gnu"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("define void @f(ptr %y) {\n  ret\n}", r"kernel 'f': line 3, column"),
        ("define void @f(half** %y, ptr* %x) { ret void }", "line 1, column"),
        ("define void @g(ptr %y) { ret void }", "does not define @f"),
        ("define i32 @f(ptr %y) { ret i32 0 }", "@f returns i32, expected void"),
        ("define void @f(ptr %y, ...) { ret void }", "takes any number of arguments"),
        ("define void @f(ptr %y, i1 %b) { ret void }", "parameter 1 of @f has type i1, expected"),
        ("define void @f(ptr addrspace(1) %y) { ret void }", r"has type ptr addrspace\(1\)"),
        ("define void @f(ptr byval(i32) %y) { ret void }", "passed in a special way"),
        ("declare void @g()\ndefine void @f(ptr %y) { call void @g()\nret void }", "calls @g"),
        ("@g = external global i32\ndefine void @f(ptr %y) { ret void }", "refers to @g"),
        ("@g = internal global i32 0\ndefine void @f(ptr %y) { ret void }", "is not constant"),
        ('module asm "nop"\ndefine void @f(ptr %y) { ret void }', "has assembly in it"),
        (
            'define void @f(ptr %y) {\ncall void asm "nop", ""()\nret void }',
            "has assembly in it",
        ),
        (
            f'target triple = "{FOREIGN}"\ndefine void @f(ptr %y) {{ ret void }}',
            f"its target triple is {FOREIGN}, expected that of this machine",
        ),
        (
            'target datalayout = "e-p:32:32"\ndefine void @f(ptr %y) { ret void }',
            "its target datalayout is e-p:32:32, expected",
        ),
        (
            "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\ndefine void @f(ptr %y) {\n"
            "%t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\nret void }",
            "calls @llvm.nvvm.read.ptx.sreg.tid.x, which this machine does not have",
        ),
        (
            "declare void @llvm.none()\n"
            "define void @f(ptr %y) {\ncall void @llvm.none()\nret void }",
            "calls @llvm.none, which LLVM does not have",
        ),
    ],
)
def test_texts_that_are_no_kernels(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hostjit.kernel(source, "f", language="llvm_ir", writes=[0])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86")
def test_instructions_that_the_cpu_may_not_have() -> None:
    source = """declare void @llvm.x86.sse2.pause()
    define void @f(ptr %y) FEATURES {
      call void @llvm.x86.sse2.pause()
      store float 3.0, ptr %y
      ret void
    }"""

    def made(features: str) -> hostjit.Kernel:
        text = source.replace("FEATURES", features)
        return hostjit.kernel(text, "f", language="llvm_ir", writes=[0])

    with pytest.raises(ValueError, match='where no "target-features" say what that needs'):
        made("")
    with pytest.raises(ValueError, match="@f needs xop, which this CPU does not have"):
        made('"target-features"="+sse2,+xop"')
    x = torch.zeros(1)
    hostjit.launch(made('"target-features"="+sse2,-xop"'), 1, (x,))
    assert x == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": ["ptr", "ptr", "f64", "i64"]}, r"but the function takes \[ptr, ptr, f32"),
        ({"parameters": ["f31*"]}, "parameter 0 has type 'f31\\*', expected one of"),
        ({"writes": [2]}, "writes parameter 2, expected the position of a pointer"),
        ({"over_range": True}, r"expected two of type i64 at the end"),
        ({"block": 10}, "block is for kernels over a range"),
        ({"shared_memory": 10}, "shared_memory is for CUDA"),
        ({"options": ["-g"]}, "options are for CUDA C\\+\\+"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hostjit.kernel(text(), "scale", language="llvm_ir", **{"writes": [0], **options})


@pytest.mark.parametrize(
    ("code", "options", "message"),
    [
        (build_scale, {}, "parameters is missing"),
        (build_scale, {"parameters": ["ptr"]}, "is called with a builder and 1 parameters"),
        (lambda builder, y: y, {"parameters": ["ptr"]}, "returned a Argument, expected None"),
        (ctypes.CFUNCTYPE(None)(0), {}, "the address of the C function is 0"),
        (0, {"language": "c_function"}, "the address of the C function is 0"),
        (True, {"language": "c_function"}, "the address of the C function is True"),
        (ctypes.pythonapi.Py_IncRef, {}, "is a function of ctypes.PyDLL, which needs the GIL"),
        (ctypes.CFUNCTYPE(ctypes.c_double)(lambda: 0.0), {}, "returns c_double, expected None"),
        (ctypes.CFUNCTYPE(None, ctypes.c_bool)(lambda _: None), {}, r"argtypes\[0\] is c_bool"),
        (ctypes.CFUNCTYPE(None, ctypes.c_int8)(lambda _: None), {}, "parameter 0 is an i8"),
        (ir.Module("empty"), {}, "entry is missing, expected one of the functions"),
    ],
)
def test_what_is_no_kernel_for_the_cpu(code: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        hostjit.kernel(code, writes=[], **options)


def test_a_range_is_for_the_cpu() -> None:
    with pytest.raises(ValueError, match="over_range is for the CPU"):
        hostjit.kernel("", "k", parameters=["ptr"], writes=[0], over_range=True)
