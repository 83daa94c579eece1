# SPDX-License-Identifier: Apache-2.0
"""Calls under a default device: they are compiled, for the device that new tensors are on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import hostjit

Compile = Callable[[Callable[..., Any]], Any]

COMPILERS: dict[str, Compile] = {
    "compile": hostjit.compile,
    "capture": hostjit.capture,
    "evaluator": lambda f: hostjit.compile(f, runtime="evaluator"),
}


@contextlib.contextmanager
def set_default(device: str) -> Iterator[None]:
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@pytest.fixture(params=[set_default, torch.device])
def default(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    found: Callable[[str], Any] = request.param
    return found


@pytest.fixture(params=COMPILERS)
def compile(request: pytest.FixtureRequest) -> Compile:
    return COMPILERS[request.param]


def plus_ones(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) + torch.ones(4)


def made(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x * 2, torch.arange(3)


@torch.no_grad()
def test_calls_are_compiled(compile: Compile, default: Callable[[str], Any]) -> None:
    compiled = compile(plus_ones)
    with default("cpu"):
        for _ in range(4):
            x = torch.randn(4)
            torch.testing.assert_close(compiled(x), plus_ones(x))
    assert len(compiled.specializations) == 1
    assert "launch_kernel" in compiled.host_ir()
    assert compiled.specializations[0].describe()["modes"]["default_device"] == "cpu"


@torch.no_grad()
def test_each_device_has_programs_of_its_own(
    compile: Compile, default: Callable[[str], Any]
) -> None:
    compiled = compile(made)
    x = torch.ones(3)
    for _ in range(3):
        for device in (None, "cpu", "meta"):
            with contextlib.nullcontext() if device is None else default(device):
                for _ in range(2):
                    doubled, fresh = compiled(x)
                    assert fresh.device.type == (device or "cpu")
                    assert torch.equal(doubled, torch.full((3,), 2.0, device="cpu"))


def test_gradients(default: Callable[[str], Any]) -> None:
    compiled = hostjit.compile(plus_ones)
    with default("cpu"):
        for _ in range(3):
            x, y = (torch.full((4,), 0.5, requires_grad=True) for _ in range(2))
            compiled(x).sum().backward()
            plus_ones(y).sum().backward()
            torch.testing.assert_close(x.grad, y.grad)
    assert compiled.specializations


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_steps_of_optimizers_elsewhere(
    kind: Any, device: str, default: Callable[[str], Any]
) -> None:
    """Numbers of a step are on the CPU, wherever new tensors are."""

    def trained(compile: Compile) -> torch.Tensor:
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = kind([weight], lr=0.1)
        step = compile(optimizer.step)
        for number in range(5):
            weight.grad = weight.detach() * 2
            # Its state is made at the first step.
            with default(device) if number else contextlib.nullcontext():
                step()
        return weight.detach()

    torch.testing.assert_close(trained(hostjit.compile), trained(lambda step: step))


@torch.no_grad()
def test_numbers_and_places_elsewhere(default: Callable[[str], Any]) -> None:
    def function(x: torch.Tensor, n: int, t: float) -> torch.Tensor:
        return x[[n, n - 1]] / 3 + torch.add(x[:2], x[1:], alpha=0.3) * t

    compiled, x = hostjit.compile(function, fallback=False), torch.randn(3, 4)
    for n in range(3):
        expected = function(x, n, n / 4)
        with default("meta"):
            torch.testing.assert_close(compiled(x, n, n / 4), expected)


@torch.no_grad()
def test_the_backend_of_torch_compile(default: Callable[[str], Any]) -> None:
    torch.compiler.reset()
    compiled = torch.compile(made, backend="hostjit")
    for _ in range(2):
        for device in ("cpu", "meta"):
            with default(device):
                doubled, fresh = compiled(torch.ones(3, device="cpu"))
            assert fresh.device.type == device and doubled.tolist() == [2, 2, 2]


@torch.no_grad()
def test_the_innermost_default_counts(compile: Compile) -> None:
    compiled = compile(made)
    x = torch.ones(3)
    with set_default("meta"):
        for _ in range(3):
            with torch.device("cpu"):
                assert compiled(x)[1].tolist() == [0, 1, 2]
            assert compiled(x)[1].device.type == "meta"
            with torch.device("cpu"), torch.device("meta"):
                assert compiled(x)[1].device.type == "meta"


class Counting(TorchFunctionMode):
    """See every function of PyTorch that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


@torch.no_grad()
@pytest.mark.parametrize("device", [None, "cpu"])
def test_other_modes_see_what_is_called(compile: Compile, device: str | None) -> None:
    compiled = compile(plus_ones)
    x = torch.randn(4)
    for _ in range(3):
        compiled(x)
    with contextlib.nullcontext() if device is None else torch.device(device), Counting() as mode:
        compiled(x)
    assert "tanh" in mode.names and "ones" in mode.names


@torch.no_grad()
def test_a_class_of_that_name_is_another_mode(compile: Compile) -> None:
    class DeviceContext(Counting):
        device = torch.device("cpu")

    compiled = compile(plus_ones)
    with DeviceContext() as mode:
        compiled(torch.randn(4))
    assert "tanh" in mode.names


@torch.no_grad()
@pytest.mark.parametrize("before", [None, "cpu"])
@pytest.mark.parametrize("after", [None, "cpu"])
def test_files_know_the_device(before: str | None, after: str | None, tmp_path: Path) -> None:
    def under(device: str | None) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if device is None else torch.device(device)

    compiled = hostjit.compile(plus_ones)
    with under(before):
        compiled(torch.ones(4))
    hostjit.save(compiled, tmp_path / "f.hostjit")
    with under(after):
        loaded = hostjit.load(tmp_path / "f.hostjit")
        assert torch._C._len_torch_function_stack() == (after is not None)
    with under(before):
        torch.testing.assert_close(loaded(torch.ones(4)), plus_ones(torch.ones(4)))
    if before is not None:
        with under("meta"), pytest.raises(RuntimeError, match=f"new tensors on {before}"):
            loaded(torch.ones(4, device="cpu"))
