# SPDX-License-Identifier: Apache-2.0
"""Launches of users' kernels and of Triton in recordings, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from beside_eager_on_gpu import assert_same
from gpu_device import DEVICE, MISSING

import hostjit

pytestmark = pytest.mark.skipif(
    bool(MISSING) or DEVICE != "cuda", reason=MISSING or "launches on a CUDA device"
)

SOURCE = """
extern "C" __global__ void scale(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
"""
CUDA = hostjit.kernel(
    SOURCE, "scale", parameters=["ptr", "ptr", "f32", "i32"], writes=[0], block=128
)


Launch = Callable[[torch.Tensor, torch.Tensor, float], None]


def by_hostjit() -> Launch:
    def launch(y: torch.Tensor, x: torch.Tensor, factor: float) -> None:
        hostjit.launch(CUDA, lambda y, x, a, n: (n + 127) // 128, (y, x, factor, x.numel()))

    return launch


def by_triton() -> Launch:
    pytest.importorskip("triton")
    from triton_functions import scale

    def launch(y: torch.Tensor, x: torch.Tensor, factor: float) -> None:
        n = x.numel()
        scale[lambda meta: (n // meta["BLOCK"] + 1,)](y, x, factor, n, BLOCK=128)

    return launch


def tuned_by_triton() -> Launch:
    pytest.importorskip("triton")
    from triton_functions import tuned

    def launch(y: torch.Tensor, x: torch.Tensor, factor: float) -> None:
        n = x.numel()
        tuned[lambda meta: (n // meta["BLOCK"] + 1,)](y, x, factor, n)

    return launch


@pytest.fixture(params=[by_hostjit, by_triton, tuned_by_triton])
def launch(request: pytest.FixtureRequest) -> Launch:
    found: Launch = request.param()
    return found


def assert_replayed(captured: Any, count: int = 1) -> None:
    assert captured.captured is not None
    assert len(captured.specializations) == count
    assert "launch_kernel" in captured.host_ir()


def test_replays(launch: Launch, runtime: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        launch(y, x + 1, 0.5)
        return y * 2

    for size in (1, 16, 1000, 1001):
        captured = hostjit.capture(f, runtime=runtime, fallback=False)
        for _ in range(5):
            x = torch.rand(size, device="cuda")
            assert_same(captured(x), (x + 1) * 0.5 * 2)
        assert_replayed(captured)


def test_an_argument_that_is_written(launch: Launch, runtime: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for factor in (2.0, 0.25):
            launch(x, x, factor)
        return x + 1

    captured = hostjit.capture(f, runtime=runtime, fallback=False)
    captured(torch.rand(1000, device="cuda"))  # in which Triton tunes
    for _ in range(4):
        x = torch.rand(1000, device="cuda")
        expected = x * 0.5
        assert_same(captured(x), expected + 1)
        assert_same(x, expected)
    assert_replayed(captured)


def test_arguments_at_any_address(launch: Launch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        launch(y, x, 2.0)
        return y

    captured = hostjit.capture(f, fallback=False)
    memory = torch.rand(1100, device="cuda")
    for offset in (0, 0, 0, 1, 4, 3):
        x = memory[offset : offset + 1000]
        assert_same(captured(x), x * 2)
    torch.cuda.synchronize()
    # Triton has a kernel for memory that begins where 16 divides, and another one.
    assert 1 <= len(captured.specializations) <= 2


@pytest.mark.parametrize("graphs", ["on", "off"])
def test_launches_in_graphs(launch: Launch, graphs: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        for _ in range(5):
            z = torch.empty_like(y)
            launch(z, y, 0.5)
            y = torch.tanh(z)
        return y

    def expected(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        for _ in range(5):
            y = torch.tanh(y * 0.5)
        return y

    captured = hostjit.capture(f, graphs=graphs, fallback=False)
    for _ in range(6):
        x = torch.rand(1000, device="cuda")
        assert_same(captured(x), expected(x))
    assert_replayed(captured)


def test_the_stream_of_the_call_is_used(launch: Launch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        launch(y, x, 2.0)
        return y

    captured = hostjit.capture(f, fallback=False)
    x = torch.zeros(1000, device="cuda")
    for _ in range(3):
        captured(x)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(400_000_000)
        x.fill_(5)
        result = captured(x)
    side.synchronize()
    assert_same(result, torch.full_like(x, 10))


def test_a_training_step_with_kernels_of_both_directions(launch: Launch) -> None:
    """The backward pass is recorded in the thread of the call, with all that its code reads."""

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            launch(y, x.contiguous(), 3.0)
            return y

        @staticmethod
        def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(gradients[0])
            launch(y, gradients[0].contiguous(), 3.0)
            return y

    def step(x: torch.Tensor, weight: torch.Tensor, *, by_kernel: bool) -> torch.Tensor:
        hidden = x * weight
        loss = (Scale.apply(hidden) if by_kernel else hidden * 3.0).square().mean()
        (gradient,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight.sub_(gradient)
        return loss.detach()

    first, second = (torch.ones(64, device="cuda", requires_grad=True) for _ in range(2))
    captured = hostjit.capture(lambda x: step(x, first, by_kernel=True), fallback=False)
    for _ in range(6):
        x = torch.rand(64, device="cuda")
        assert_same(captured(x), step(x, second, by_kernel=False))
        assert_same(first.detach(), second.detach())
    assert captured.captured is not None


def test_a_recording_is_saved_with_its_kernels(launch: Launch, tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        launch(y, x, 2.0)
        return y + 1

    captured = hostjit.capture(f, fallback=False)
    for _ in range(3):
        captured(torch.rand(1000, device="cuda"))
    hostjit.save(captured, tmp_path / "f.hostjit")
    loaded = hostjit.load(tmp_path / "f.hostjit")
    x = torch.rand(1000, device="cuda")
    assert_same(loaded(x), x * 2 + 1)


def test_launches_on_the_second_device(launch: Launch) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        launch(y, x, 2.0)
        return y

    with torch.cuda.device(1):
        captured = hostjit.capture(f, fallback=False)
        for _ in range(4):
            x = torch.rand(1000, device="cuda:1")
            assert_same(captured(x), x * 2)
        assert_replayed(captured)
