# SPDX-License-Identifier: Apache-2.0
"""`hostjit.launch` on the CPU inside of recordings: replays do what eager mode does."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cpu_kernels import WORDS, build_scale, c_scale, of_text
from recorded_beside_eager import check
from torch import nn
from torch.testing import assert_close

import hostjit

RUNTIMES = ("jit", "evaluator")
SCALE = of_text()
ADD = of_text("add", "fadd")
RANGED = of_text("ranged", over_range=True)
randn = torch.randn


def _of_cffi() -> Any:
    ffi = pytest.importorskip("cffi").FFI()

    @ffi.callback("void(float *, const float *, float, long)")
    def scale(y: Any, x: Any, a: float, n: int) -> None:
        for i in range(n):
            y[i] = a * x[i]

    return scale


def _of_numba() -> Any:
    numba = pytest.importorskip("numba")
    floats = numba.types.CPointer(numba.types.float32)
    signature = numba.types.void(floats, floats, numba.types.float32, numba.types.int64)

    @numba.cfunc(signature)
    def scale(y: Any, x: Any, a: float, n: int) -> None:
        for i in range(n):
            y[i] = a * x[i]

    return scale


KERNELS: dict[str, Callable[[], hostjit.Kernel]] = {
    "text": of_text,
    "built": lambda: hostjit.kernel(build_scale, parameters=WORDS, writes=[0]),
    "ctypes": lambda: hostjit.kernel(c_scale(), writes=[0]),
    "address": lambda: hostjit.kernel(
        ctypes.cast(_KEPT[0], ctypes.c_void_p).value,
        language="c_function",
        parameters=WORDS,
        writes=[0],
    ),
    "cffi": lambda: hostjit.kernel(_of_cffi(), writes=[0]),
    "numba": lambda: hostjit.kernel(_of_numba(), writes=[0]),
}
_KEPT = [c_scale()]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> hostjit.Kernel:
    return KERNELS[request.param]()


def _scaled(kernel: hostjit.Kernel, x: torch.Tensor, a: float) -> torch.Tensor:
    y = torch.empty_like(x)
    hostjit.launch(kernel, 1, (y, x, a, x.numel()))
    return y


@pytest.mark.parametrize("prune", [False, True])
def test_several_launches_between_operators(kernel: hostjit.Kernel, prune: bool) -> None:
    def call(x: torch.Tensor, a: float, table: torch.Tensor) -> Any:
        y = _scaled(kernel, x + 1, a).relu()
        hostjit.launch(SCALE, (1,), (y, y, -0.5, y.numel()))  # in place
        hostjit.launch(kernel, 1, (table[1], y[2], 3.0, 5))  # rows of a result and of an argument
        hostjit.launch(ADD, 1, (table[2:], table[:2], a, 10))
        return y.t(), (y + table).sum(), [_scaled(ADD, table, 1.0)], table

    calls = [(randn(4, 5), a, randn(4, 5)) for a in (0.5, 0.5, 0.5, 2.0, 0.5, 2.0)]
    check(call, calls, recordings=2, prune=prune)


def test_grids_and_blocks() -> None:
    def call(x: torch.Tensor, rows: int) -> tuple[torch.Tensor, ...]:
        y, z = torch.zeros_like(x), torch.ones_like(x)
        hostjit.launch(RANGED, rows * 3, (y, x, 2.0, 0))
        hostjit.launch(RANGED, lambda y, x, a, n: (n,), (z, x, 3.0, x.numel()), block=100)
        hostjit.launch(RANGED, (0,), (z, x, 9.0, 0))
        hostjit.launch(SCALE, rows - rows, (z, x, 9.0, x.numel()))
        return y, z

    calls = [(randn(size, 3), rows) for size, rows in ((400, 7), (400, 7), (400, 7), (400, 0))]
    check(call, [*calls, (randn(5, 3), 2), (randn(5, 3), 5), (randn(400, 3), 7)], recordings=4)


def test_operands_that_are_one_or_are_returned() -> None:
    def call(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hostjit.launch(SCALE, 1, (y, x, 2.0, 6))
        before = y.clone()
        hostjit.launch(ADD, 1, (y, y, 1.0, 6))
        return y, before, x, y.view(2, 3)[1]

    check(call, [(randn(6), randn(6)) for _ in range(5)])
    for runtime in RUNTIMES:
        fast = hostjit.capture(call, runtime=runtime)
        for number in range(6):
            x = torch.full((6,), float(number))
            y = x if number % 2 else randn(6)
            found = fast(x, y)
            assert found[0] is y and found[2] is x
            assert_close(y, torch.full((6,), 2.0 * number + 1))
            assert_close(found[1], torch.full((6,), 2.0 * number))


def test_memory_of_others() -> None:
    """Parts of a buffer that no argument holds, written by each replay."""
    for runtime in RUNTIMES:
        buffer, expected = torch.zeros(4, 3), torch.zeros(4, 3)

        def write(x: torch.Tensor, buffer: torch.Tensor = buffer) -> torch.Tensor:
            hostjit.launch(SCALE, 1, (buffer[1:3], x, 2.0, 6))
            hostjit.launch(ADD, 1, (buffer[0], buffer[2], 1.0, 3))
            return buffer.sum()

        fast = hostjit.capture(write, runtime=runtime)
        for _ in range(5):
            x = randn(2, 3)
            expected[1:3] = x * 2
            expected[0] = expected[2] + 1
            assert_close(fast(x), expected.sum())
            assert_close(buffer, expected)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_open_sizes(kernel: hostjit.Kernel, runtime: str) -> None:
    length = hostjit.Dim("length", 0, 40)
    cache = randn(40, 3)

    @hostjit.capture(runtime=runtime, fallback=False)
    def call(cache: torch.Tensor, x: torch.Tensor, n: int) -> torch.Tensor:
        y = torch.empty(n, 3)
        hostjit.launch(kernel, 1, (y, cache[:n], 2.0, n * 3))
        hostjit.launch(RANGED, n * 3, (y, y, 0.5, 0), block=16)
        return (y + 1).sum(0) + x

    with torch.no_grad():
        for n in (3, 3, 5, 17, 40, 0, 1, 39):
            x = randn(3)
            assert_close(call(cache, x, length(n)), (cache[:n] + 1).sum(0) + x)
    assert len(call.specializations) <= 3  # 0 and 1 may have their own
    assert "launch_kernel" in call.host_ir()


class Scale(torch.autograd.Function):
    """x * 3, by launches in both directions."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, kernel: hostjit.Kernel) -> torch.Tensor:
        context.kernel = kernel
        return _scaled(kernel, x, 3.0)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return _scaled(context.kernel, gradient.contiguous(), 3.0), None


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_training_steps(kernel: hostjit.Kernel, runtime: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    twin = copy.deepcopy(model)

    def make(model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        seen = torch.zeros(2)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            y = Scale.apply(model(x), kernel)
            loss = (y * y).mean()
            loss.backward()
            optimizer.step()
            hostjit.launch(ADD, 1, (seen, y.detach()[0], 1.0, 2))
            return loss.detach() + seen.sum()

        return step

    fast, eager = hostjit.capture(make(model), runtime=runtime, fallback=False), make(twin)
    for _ in range(6):
        x = randn(5, 3)
        assert_close(fast(x), eager(x))
    assert_close(list(model.parameters()), list(twin.parameters()))
    assert len(fast.specializations) == 1


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_pruned(kernel: hostjit.Kernel, runtime: str) -> None:
    weight, state = randn(4), torch.ones(4)

    def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        table = _scaled(kernel, weight.exp(), 2.0)
        hostjit.launch(ADD, 1, (state, state, 1.0, 4))
        return x + table, table, x * _scaled(kernel, state, 0.5)

    fast = hostjit.capture(call, prune=True, runtime=runtime)
    for number in range(7):
        if number == 4:
            weight.mul_(0.5)
        before, x = state.clone(), randn(4)
        table = weight.exp() * 2
        assert_close(fast(x), (x + table, table, x * (before + 1) * 0.5))
        assert_close(state, before + 1)
    assert fast.captured is not None and fast.captured.pruned > 0


def test_values_that_are_read_after_a_launch() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        y = _scaled(SCALE, x, 2.0)
        return y + 1 if y.sum() > 0 else _scaled(ADD, y, -1.0)

    ones = torch.ones(3)
    check(call, [(ones,), (ones,), (-ones,), (ones,), (-ones,)], recordings=2)


def test_random_numbers_and_other_dtypes() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        noise = _scaled(SCALE, torch.rand(3), 0.5)
        return _scaled(SCALE, (x.double() + noise).float(), 2.0).to(torch.bfloat16)

    check(call, [(randn(3),) for _ in range(5)])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_another_kernel_is_another_recording(runtime: str) -> None:
    chosen = {"kernel": SCALE}
    fast = hostjit.capture(lambda x: _scaled(chosen["kernel"], x, 2.0), runtime=runtime)
    for kernel, expected in ((SCALE, 2.0), (SCALE, 2.0), (ADD, 3.0), (ADD, 3.0), (SCALE, 2.0)):
        chosen["kernel"] = kernel
        assert_close(fast(torch.ones(3)), torch.full((3,), expected))
    assert len(fast.specializations) == 2


def test_what_a_launch_refuses_is_eagers_error() -> None:
    typed = of_text(parameters=WORDS)
    calls: list[Callable[[torch.Tensor], Any]] = [
        lambda x: hostjit.launch(typed, 1, (x.t(), x, 1.0, 6)),
        lambda x: hostjit.launch(typed, 1, (x.double(), x, 1.0, 6)),
        lambda x: hostjit.launch(typed, 1, (x, x, 1.0)),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError, RuntimeError)) as expected:
            call(randn(2, 3))
        fast = hostjit.capture(call, warmup=0)
        for _ in range(3):
            with pytest.raises(expected.type) as found:
                fast(randn(2, 3))
            assert str(found.value) == str(expected.value)
