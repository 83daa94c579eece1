# SPDX-License-Identifier: Apache-2.0
"""Loops of many operators, of which passes are compiled instead of all of them in a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_passes import compiled
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit
from hostjit.capturing.dynamo import long_loops
from hostjit.parts.parts import Parts

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

W = torch.linspace(-0.4, 0.4, 9).view(3, 3)
LAYER = nn.Linear(3, 3)


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(long_loops, "_OPERATORS", 100)
    monkeypatch.setattr(long_loops, "_PASSES", 10)


@pytest.fixture
def in_passes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each loop that is too long runs in passes."""
    found: list[bool] = []
    by_long_passes = Parts.by_long_passes

    def noted(parts: Parts, error: Any) -> Any:
        made = by_long_passes(parts, error)
        found.append(made is not None)
        return made

    monkeypatch.setattr(Parts, "by_long_passes", noted)
    return found


def steps(x: Tensor, n: int = 50) -> Tensor:
    for _ in range(n):
        x = torch.tanh(x @ W) + 0.1
    return x.exp()


def with_a_counter(x: Tensor, n: int = 50) -> tuple[Tensor, int]:
    k = 0
    while k < n:
        x = torch.tanh(x @ W) + 0.1 * k
        k += 2
    return x, k


def rows(x: Tensor, n: int = 50) -> Tensor:
    out = torch.zeros(n, *x.shape)
    with torch.no_grad():
        for i in range(n):
            x = torch.tanh(LAYER(x)) + i * 0.01
            out[i] = x
    return out


def two(x: Tensor, n: int = 50) -> tuple[Tensor, Tensor]:
    y = x * 2
    for _ in range(n):
        x, y = torch.tanh(y @ W) + 0.1, x * 0.9
    for _ in range(n):
        y = torch.sin(y) + x
    return x, y


@pytest.mark.parametrize("how", ["hostjit.compile", "torch.compile"])
@pytest.mark.parametrize("function", [steps, with_a_counter, rows, two])
def test_long_loops_run_in_passes(function: Any, how: str, in_passes: list[bool]) -> None:
    fast = compiled(how, function)
    for n in (50, 50, 50, 3, 80, 0, 81):
        x = torch.randn(2, 3)
        assert_close(fast(x, n), function(x, n))
    assert all(in_passes)
    assert in_passes or how == "torch.compile"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(50):
            x = torch.tanh(self.layer(x)) + 0.1 * x
        return x

    def rollout(self, x: Tensor) -> Tensor:
        for _ in range(60):
            x = torch.sin(self.layer(x)) + 0.1 * x
        return x


@pytest.mark.parametrize("name", ["forward", "rollout"])
def test_methods(name: str, in_passes: list[bool]) -> None:
    model = Model()
    target = getattr(model, name)
    fast = hostjit.compile(target)
    for _ in range(5):
        x = torch.randn(2, 3)
        assert_close(fast(x), target(x))
    assert in_passes == [True]


def test_a_module_is_called_with_its_hooks(in_passes: list[bool]) -> None:
    model = Model()
    fast = hostjit.compile(model)
    seen = []

    def check() -> None:
        x = torch.randn(2, 3)
        assert_close(fast(x), model(x))

    for _ in range(3):
        check()
    assert in_passes == [True]
    handle = model.register_forward_hook(lambda module, given, result: seen.append(result))
    check()
    assert len(seen) == 2
    handle.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda *args: args[-1] * 2)
    check()
    handle.remove()
    model.forward = model.rollout  # type: ignore[method-assign]
    check()
    del model.forward
    model.layer.weight.mul_(0.5)
    check()


def that_draws(x: Tensor) -> Tensor:
    for _ in range(50):
        x = torch.tanh(x @ W) + 0.1 * torch.randn(3)
    return x


def that_keeps_tensors(x: Tensor) -> Tensor:
    found = []
    for _ in range(50):
        x = torch.tanh(x @ W) + 0.1
        found.append(x)
    return torch.stack(found)


def over_rows(x: Tensor) -> Tensor:
    for row in torch.ones(50, 3):
        x = torch.tanh(x @ W) + 0.1 * row
    return x


def that_calls_a_loop(x: Tensor) -> Tensor:
    return steps(x * 2)


def in_a_transform(x: Tensor) -> Tensor:
    return torch.func.vmap(steps)(x)


def with_a_generator(x: Tensor) -> Tensor:
    def values() -> Any:
        value = x
        for _ in range(50):
            value = torch.tanh(value @ W) + 0.1
            yield value

    return sum(values())


UNROLLED: list[Callable[..., Any]] = [
    *(that_draws, that_keeps_tensors, over_rows, that_calls_a_loop, in_a_transform),
    with_a_generator,
]


@pytest.mark.parametrize("how", ["hostjit.compile", "torch.compile"])
@pytest.mark.parametrize("function", UNROLLED)
def test_loops_that_are_unrolled(function: Any, how: str, in_passes: list[bool]) -> None:
    fast = compiled(how, function)
    for seed in range(4):
        x = torch.randn(2, 3)
        torch.manual_seed(seed)
        expected = function(x)
        torch.manual_seed(seed)
        assert_close(fast(x), expected)
    assert True not in in_passes


def test_gradients_flow_through_one_program(in_passes: list[bool]) -> None:
    fast = hostjit.compile(steps)
    for _ in range(3):
        x = torch.randn(2, 3, requires_grad=True)
        twin = x.detach().clone().requires_grad_()
        fast(x).sum().backward()
        steps(twin).sum().backward()
        assert_close(x.grad, twin.grad)
    assert in_passes == []


def test_one_program_is_one_program(in_passes: list[bool]) -> None:
    fast = hostjit.compile(steps, fallback=False)
    x = torch.randn(2, 3)
    assert_close(fast(x), steps(x))
    assert in_passes == []
    assert fast.host_ir().startswith("program @steps")


def closures(x: Tensor, n: int = 50) -> tuple[Tensor, list[Any]]:
    made = []
    for i in range(n):
        x = torch.tanh(x @ W) + 0.1
        made.append(lambda: i)  # noqa: B023
    return x, [each() for each in made]


def test_passes_that_keep_functions_are_unrolled(in_passes: list[bool]) -> None:
    fast = hostjit.compile(closures)
    for _ in range(3):
        x = torch.randn(2, 3)
        assert_close(fast(x)[0], closures(x)[0])
        assert fast(x)[1] == closures(x)[1]
    assert in_passes == []
