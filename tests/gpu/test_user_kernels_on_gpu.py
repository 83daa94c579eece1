# SPDX-License-Identifier: Apache-2.0
"""Kernels that users bring, launched eagerly and in compiled functions, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager_on_gpu import assert_same, assert_same_calls
from gpu_device import DEVICE, MISSING

import hostjit
from hostjit.kernels.cuda.nvrtc import compile_function

pytestmark = pytest.mark.skipif(
    bool(MISSING) or DEVICE != "cuda", reason=MISSING or "launches on a CUDA device"
)

SOURCE = """
extern "C" __global__ void scale(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
extern "C" __global__ void reversed(float* y, const float* x, long long n) {
  extern __shared__ float row[];
  row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = row[n - 1 - threadIdx.x];
}
"""
PARAMETERS = ["ptr", "ptr", "f32", "i32"]


def from_source() -> hostjit.Kernel:
    return hostjit.kernel(SOURCE, "scale", parameters=PARAMETERS, writes=[0], block=128)


def ptx() -> str:
    major, minor = torch.cuda.get_device_capability()
    return compile_function(SOURCE, "scale", f"sm_{major}{minor}")[0]


def from_ptx() -> hostjit.Kernel:
    return hostjit.kernel(
        ptx(), "scale", language="ptx", parameters=PARAMETERS, writes=[0], block=128
    )


def from_cupy() -> hostjit.Kernel:
    cupy = pytest.importorskip("cupy")
    kernel = cupy.RawKernel(SOURCE, "scale")
    return hostjit.kernel(kernel, parameters=PARAMETERS, writes=[0], block=128)


def from_triton() -> hostjit.Kernel:
    compiled = _compiled_by_triton(pytest.importorskip("triton"))
    return hostjit.kernel(compiled, parameters=PARAMETERS, writes=[0])


def _compiled_by_triton(triton: Any) -> Any:
    from triton_functions import scale

    signature = {"y": "*fp32", "x": "*fp32", "a": "fp32", "n": "i32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(scale, signature, {(4,): 128}, {})
    return triton.compile(source, options={"num_warps": 4})


SOURCES: list[Callable[[], hostjit.Kernel]] = [from_source, from_ptx, from_cupy, from_triton]


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("size", [1, 127, 128, 1000])
def test_launches(make: Callable[[], hostjit.Kernel], size: int, runtime: str) -> None:
    kernel = make()

    def launched(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(kernel, lambda y, x, a, n: (n + 127) // 128, (y, x + 1, 0.5, x.numel()))
        return y * 2

    def expected(x: torch.Tensor) -> torch.Tensor:
        return (x + 1) * 0.5 * 2

    x = torch.rand(size, device="cuda")
    assert_same(launched(x), expected(x))
    compiled = hostjit.compile(launched, runtime=runtime, fallback=False)
    assert_same_calls(expected, compiled, (x,), calls=4)


def test_an_input_that_is_written(runtime: str) -> None:
    kernel = from_source()

    def launched(x: torch.Tensor) -> torch.Tensor:
        for factor in (2.0, 0.25):
            hostjit.launch(kernel, (8,), (x, x, factor, x.numel()))
        return x + 1

    def expected(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2.0).mul_(0.25) + 1

    compiled = hostjit.compile(launched, runtime=runtime, fallback=False)
    assert_same_calls(expected, compiled, (torch.rand(1000, device="cuda"),), calls=4)


@pytest.mark.parametrize("graphs", ["on", "off"])
def test_launches_in_graphs(graphs: str) -> None:
    kernel = from_source()

    def launched(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        for _ in range(5):
            z = torch.empty_like(y)
            hostjit.launch(kernel, (8,), (z, y, 0.5, y.numel()))
            y = torch.tanh(z)
        return y

    def expected(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        for _ in range(5):
            y = torch.tanh(y * 0.5)
        return y

    compiled = hostjit.compile(launched, graphs=graphs, fallback=False)
    for _ in range(5):
        assert_same_calls(expected, compiled, (torch.rand(1000, device="cuda"),), calls=4)


def test_open_sizes() -> None:
    kernel = from_source()

    def launched(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(kernel, ((x.numel() + 127) // 128,), (y, x, 3.0, x.numel()))
        return y

    compiled = hostjit.compile(launched, dynamic=True, fallback=False)
    for size in (2, 100, 1000, 129, 2):
        x = torch.rand(size, 3, device="cuda")
        assert_same(compiled(x), x * 3.0)


def test_dynamic_shared_memory(runtime: str) -> None:
    kernel = hostjit.kernel(SOURCE, "reversed", parameters=["ptr", "ptr", "i64"], writes=[0])

    def launched(x: torch.Tensor, shared_memory: int) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(kernel, 1, (y, x, x.numel()), block=x.numel(), shared_memory=shared_memory)
        return y

    compiled = hostjit.compile(launched, runtime=runtime, fallback=False)
    x = torch.rand(512, device="cuda")
    for shared_memory in (2048, 64 * 1024):
        assert_same(launched(x, shared_memory), x.flip(0))
        assert_same(compiled(x, shared_memory), x.flip(0))


def test_a_side_stream(runtime: str) -> None:
    kernel = from_source()

    def launched(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(kernel, (8,), (y, x, 2.0, x.numel()))
        return y

    compiled = hostjit.compile(launched, runtime=runtime, fallback=False)
    x = torch.zeros(1000, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(400_000_000)
        x.fill_(5)
        results = launched(x), compiled(x)
    side.synchronize()
    for result in results:
        assert_same(result, torch.full_like(x, 10))


@pytest.mark.parametrize(
    ("parameters", "args", "message"),
    [
        (["ptr", "ptr", "f32"], (1.0,), "expected 3|more than 3 parameters"),
        (["ptr", "ptr", "f32", "i64"], (1.0, 4), "has 4 bytes, expected 8"),
        (PARAMETERS, (1.0, 1 << 32), "parameter 3 is 4294967296"),
    ],
)
def test_what_does_not_fit(parameters: list[str], args: tuple[Any, ...], message: str) -> None:
    kernel = hostjit.kernel(SOURCE, "scale", parameters=parameters, writes=[0], block=32)

    def launched(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(kernel, 1, (x, x, *args))
        return x + 1

    x = torch.ones(4, device="cuda")
    for function in (launched, hostjit.compile(launched, fallback=False)):
        with pytest.raises(RuntimeError, match=message):
            function(x)


def test_triton_functions(runtime: str) -> None:
    triton = pytest.importorskip("triton")
    from triton_functions import scale, tuned

    def launched(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, z = torch.empty_like(x), torch.empty_like(x)
        n = x.numel()
        scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](y, x + 1, 0.5, n, BLOCK=128)
        tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](z, y, 3.0, n)
        return y, z * 2

    def expected(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x + 1) * 0.5
        return y, y * 3.0 * 2

    for size in (1, 16, 1000, 1001):
        compiled = hostjit.compile(launched, runtime=runtime, fallback=False)
        x = torch.rand(size, device="cuda")
        assert_same(launched(x), expected(x))
        assert_same_calls(expected, compiled, (x,), calls=3)


def test_triton_functions_at_any_address() -> None:
    pytest.importorskip("triton")
    from triton_functions import scale

    @hostjit.compile(fallback=False)
    def launched(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        scale[(8,)](y, x, 2.0, x.numel(), BLOCK=128)
        return y

    memory = torch.rand(1100, device="cuda")
    for offset in (0, 1, 4, 3):
        x = memory[offset : offset + 1000]
        assert_same(launched(x), x * 2)
