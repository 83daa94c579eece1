# SPDX-License-Identifier: Apache-2.0
"""Replays of launches of Triton, beside eager calls, without a GPU.

Triton compiles for a GPU, and a driver that is a double emulates its launches on the CPU. A replay
launches a kernel for the CPU in place of the cubin. All else is as ever.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import hostjit
from hostjit.recording.triton import launches as triton_launches

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

import triton_recordings  # noqa: E402
from triton_driver import Launch, triton_without_a_gpu  # noqa: E402
from triton_on_cpu import EMULATIONS, launch_on_cpu  # noqa: E402
from triton_recordings import add, blocks, multiply, tuned  # noqa: E402


@pytest.fixture(autouse=True)
def driver() -> Iterator[Any]:
    with triton_without_a_gpu() as found, torch.no_grad():
        found.emulations = dict(EMULATIONS)
        yield found


@pytest.fixture
def on_cpu() -> Iterator[None]:
    with (
        mock.patch.object(triton_launches, "_obstacle", return_value=""),
        mock.patch.object(triton_launches, "launch_of", launch_on_cpu),
    ):
        yield


SCALE = 0.5


def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add[blocks](x, y + 1, out, x.numel(), SCALE, BLOCK=128)
    return out * 2


def check(captured: Any, function: Callable[..., Any], make: Callable[[], Any]) -> None:
    """Compare two calls, results and arguments."""
    for _ in range(2):
        args = make()
        eager = [arg.clone() for arg in args]
        torch.testing.assert_close(captured(*args), function(*eager))
        torch.testing.assert_close(list(args), eager)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_a_replay_does_what_triton_does(driver: Any, runtime: str) -> None:
    captured = hostjit.capture(scaled, runtime=runtime, fallback=False)
    for size in (1000, 64, 1000):
        check(captured, scaled, lambda n=size: (torch.rand(n), torch.rand(n)))
    count = len(driver.launches)
    for _ in range(3):
        captured(torch.rand(64), torch.rand(64))
    assert len(driver.launches) == count


@pytest.mark.usefixtures("on_cpu")
def test_an_argument_is_written_where_it_is(driver: Any) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for factor in (1.0, 0.25):
            add[blocks](x, y, x, x.numel(), factor, BLOCK=128)
        return x.sum()

    captured = hostjit.capture(f, fallback=False)
    for _ in range(3):
        check(captured, f, lambda: (torch.rand(300), torch.rand(300)))
    # Two in each of the eager calls, two in the first two of the captured function.
    assert len(driver.launches) == 2 * 6 + 2 * 2


@pytest.mark.usefixtures("on_cpu")
def test_calls_at_other_addresses_have_other_recordings(driver: Any, tmp_path: Path) -> None:
    weight = torch.rand(64)

    def f(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        add[blocks](x, weight, out, x.numel(), 0.5, BLOCK=128)
        return out

    memory = torch.rand(128)
    captured = hostjit.capture(f, fallback=False)
    strict = hostjit.capture(f, on_mismatch="raise", warmup=0)
    strict(memory[:64])
    for offset, count in ((0, 0), (4, 1), (0, 1), (1, 2), (2, 2), (3, 2), (8, 2)):
        x = memory[offset : offset + 64]
        torch.testing.assert_close(captured(x), f(x))
        assert len(captured.specializations) == count
        if offset % 4 == 0:
            torch.testing.assert_close(strict(x), f(x))
        else:
            with pytest.raises(hostjit.MismatchError, match="tensor 0 of the arguments begins at"):
                strict(x)
    hostjit.save(strict, tmp_path / "f.hostjit")
    loaded = hostjit.load(tmp_path / "f.hostjit")
    torch.testing.assert_close(loaded(memory[4:68]), f(memory[4:68]))
    with pytest.raises(hostjit.MismatchError, match="begins at an address that 16 divides"):
        loaded(memory[1:65])
    # The memory of what is no argument, too.
    weight.data = torch.frombuffer(bytearray(400), dtype=torch.float32, offset=4, count=64)
    torch.testing.assert_close(captured(memory[:64]), f(memory[:64]))
    with pytest.raises(hostjit.MismatchError, match=r"weight.* begins at an address that 16 does"):
        strict(memory[:64])


@pytest.mark.usefixtures("on_cpu")
def test_what_a_launch_was_made_of_is_watched(driver: Any) -> None:
    def doubled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        multiply[(1,)](x, out, x.numel(), BLOCK=64)
        return out + y

    make = lambda: (torch.rand(50), torch.rand(50))  # noqa: E731
    captured = hostjit.capture(scaled, fallback=False)
    check(captured, scaled, make)
    with mock.patch.dict(globals(), SCALE=0.25):
        check(captured, scaled, make)
    captured = hostjit.capture(doubled, fallback=False)
    check(captured, doubled, make)
    # Triton refuses a kernel one of whose globals has changed; a replay isn't more lenient.
    with (
        mock.patch.object(triton_recordings, "FACTOR", tl.constexpr(3)),
        pytest.raises(RuntimeError, match="FACTOR has changed since we compiled"),
    ):
        captured(*make())
    check(captured, doubled, make)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("way", ["function", "item", "tensor"])
def test_values_that_a_grid_reads_are_compared(driver: Any, way: str) -> None:
    def f(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        grids = {"function": lambda meta: (count.item(),), "tensor": (count,)}
        grid = grids[way] if way in grids else (int(count),)
        add[grid](x, x, out, x.numel(), 1.0, BLOCK=128)
        return out

    def emulate(launch: Launch) -> None:
        given, end = launch.arguments, 128 * launch.grid[0]
        given["out"][:end] = given["x"][:end] + given["y"][:end]

    driver.emulations["add"] = emulate
    captured = hostjit.capture(f, fallback=False)
    for blocks_ in (2, 1, 2, 1):
        check(captured, f, lambda n=blocks_: (torch.rand(300), torch.tensor(n)))
    assert captured.captured.reads == 1 and len(captured.specializations) == 2


@pytest.mark.usefixtures("on_cpu")
def test_the_call_after_one_that_tunes_is_recorded(driver: Any) -> None:
    kernel = tuned(reset_to_zero=["out"])

    def f(x: torch.Tensor) -> torch.Tensor:
        out = torch.ones_like(x)
        kernel[blocks](x, out, x.numel())
        return out

    captured = hostjit.capture(f, fallback=False, warmup=0)
    for size in (1000, 500, 250):
        driver.measured = [1.0, 2.0]
        x = torch.rand(size)
        for recorded in (False, True, True):
            torch.testing.assert_close(captured(x), 2 * x)
            count = len(captured.specializations)
            assert count == (1000, 500, 250).index(size) + recorded
    assert len(driver.launches) == 3 * (3 + 1)
    assert "grid=[1, 1, 1]" in captured.host_ir()


@pytest.mark.usefixtures("on_cpu")
def test_a_backward_pass_of_launches_is_recorded(driver: Any) -> None:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            multiply[(1,)](x, out, x.numel(), BLOCK=64)
            return out

        @staticmethod
        def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(gradients[0])
            multiply[(1,)](gradients[0].contiguous(), out, out.numel(), BLOCK=64)
            return out

    weight = torch.rand(40, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        loss = Scale.apply(x * weight).square().sum()
        loss.backward()
        return weight.grad.clone()

    with torch.enable_grad():
        captured = hostjit.capture(f, fallback=False)
        for _ in range(4):
            x = torch.rand(40)
            torch.testing.assert_close(captured(x), 8 * x.square() * weight.detach())
    assert len(driver.launches) == 4 and captured.captured is not None


def test_what_is_refused_runs_eagerly_and_says_so_once(driver: Any) -> None:
    captured = hostjit.capture(scaled)
    with warnings.catch_warnings(record=True) as said:
        for _ in range(2):
            check(captured, scaled, lambda: (torch.rand(64), torch.rand(64)))
    (warning,) = [str(each.message) for each in said]
    assert "'scaled' runs eagerly: kernel 'add' of Triton is launched on cuda:0" in warning
    with pytest.raises(hostjit.CaptureError, match="with a tensor on cpu"):
        hostjit.capture(scaled, fallback=False, warmup=0)(torch.rand(64), torch.rand(64))


@pytest.mark.usefixtures("on_cpu")
def test_a_recording_with_launches_is_saved(driver: Any, tmp_path: Path) -> None:
    captured = hostjit.capture(scaled, fallback=False)
    make = lambda: (torch.rand(300), torch.rand(300))  # noqa: E731
    check(captured, scaled, make)
    hostjit.save(captured, tmp_path / "scaled.hostjit")
    loaded = hostjit.load(tmp_path / "scaled.hostjit")
    before = len(driver.launches)
    args = make()
    found = loaded(*args)
    assert len(driver.launches) == before
    torch.testing.assert_close(found, scaled(*args))


@pytest.mark.usefixtures("on_cpu")
def test_results_around_a_launch_have_gradients(driver: Any) -> None:
    weight = torch.rand(40, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        hidden = x * weight
        add[blocks](hidden, weight, out, x.numel(), 0.5, BLOCK=128)
        return (weight * out).sum()

    with torch.enable_grad():
        captured = hostjit.capture(f, fallback=False)
        for _ in range(4):
            x = torch.rand(40)
            (expected,) = torch.autograd.grad(f(x), weight)
            (found,) = torch.autograd.grad(captured(x), weight)
            torch.testing.assert_close(found, expected)
    assert len(driver.launches) == 4 + 2
