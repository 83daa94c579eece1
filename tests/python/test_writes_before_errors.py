# SPDX-License-Identifier: Apache-2.0
"""A call that raises leaves behind what it wrote before, as in eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

Function = Callable[..., Any]


def _torch_compile(function: Function, runtime: str) -> Function:
    return torch.compile(function, backend="hostjit", options={"runtime": runtime})


def _capture(function: Function, runtime: str) -> Function:
    return hostjit.capture(function, runtime=runtime)


def _compile(function: Function, runtime: str) -> Function:
    return hostjit.compile(function, runtime=runtime, fallback=False)


def _compile_in_any_way(function: Function, runtime: str) -> Function:
    return hostjit.compile(function, runtime=runtime)


def _in_parts(function: Function, runtime: str) -> Function:
    def with_a_break(*arguments: Any) -> Any:
        result = function(*arguments)
        print(end="")
        return result

    return hostjit.compile(with_a_break, runtime=runtime)


WAYS = {
    "compile": _compile,
    "capture": _capture,
    "parts": _in_parts,
    "torch.compile": _torch_compile,
}


@pytest.fixture(params=["jit", "evaluator"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Function:
    torch._dynamo.reset()
    return WAYS[request.param]


def _indexed(state: Tensor, x: Tensor, at: Tensor) -> Tensor:
    state += 1
    y = x[at]
    state *= 2
    return y


def _factored(state: Tensor, x: Tensor, at: Tensor) -> Tensor:
    state.add_(x.sum())
    y = torch.linalg.cholesky((x - at.max()) * torch.eye(4))
    state.zero_()
    return y


def _on_the_way(state: Tensor, x: Tensor, at: Tensor) -> Tensor:
    state[0] = x.exp().sum()
    picked = x.index_select(0, at)
    state[1] = picked.sum()
    return picked.gather(0, at) + state


def _call(function: Function, *arguments: Tensor) -> tuple[type | None, str]:
    try:
        function(*arguments)
    except Exception as error:
        return type(error), str(error)
    return None, ""


@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("function", [_indexed, _factored, _on_the_way])
def test_tensors(function: Function, gradients: bool, way: Function, runtime: str) -> None:
    fast = way(function, runtime)
    torch.manual_seed(0)
    with torch.set_grad_enabled(gradients):
        for last in (1, 0, 1, 7, 0, 7):
            found = []
            x = (torch.rand(4) + 2).requires_grad_(gradients and function is _indexed)
            for run in (fast, function):
                state = torch.ones(2)
                found.append((_call(run, state, x, torch.tensor([0, last])), state))
            (raised, written), (of_eager, of_eager_written) = found
            assert raised[0] is of_eager[0] and raised[1].startswith(of_eager[1][:40])
            assert (last == 7) == (raised[0] is not None)
            assert_close(written, of_eager_written)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.calls = 0

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        self.count.add_(1)
        self.calls += 1
        return x[at] * self.count


@pytest.mark.parametrize("way", [_compile, _capture])
def test_buffers_and_numbers(way: Function, runtime: str) -> None:
    model, original = Counting(), Counting()
    fast = way(model, runtime)
    for step in range(8):
        arguments = torch.rand(4), torch.tensor([9 if step in (3, 6) else 0])
        assert _call(fast, *arguments)[0] is _call(original, *arguments)[0]
        assert (model.count, model.calls) == (original.count, original.calls)


def test_a_call_that_also_draws_raises(runtime: str) -> None:
    def function(state: Tensor, at: Tensor) -> Tensor:
        state.add_(torch.rand(2))
        return state[at]

    fast, state = _compile(function, runtime), torch.zeros(2)
    fast(state, torch.tensor([0]))
    before = state.clone()
    with pytest.raises(IndexError):
        fast(state, torch.tensor([5]))
    assert_close(state, before)  # it can't be run again


@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
@pytest.mark.parametrize("way", [_compile_in_any_way, _torch_compile])
def test_gradients_that_are_set_to_zero(way: Function, runtime: str) -> None:
    """Of a step of training that ends early, by a target that is none."""

    def step(model: nn.Module, x: Tensor, y: Tensor) -> float | None:
        model.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(model(x), y)
        if not torch.isfinite(loss):
            return None
        loss.backward()
        return loss.item()

    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    original = copy.deepcopy(model)
    fast = way(step, runtime)
    for index in range(8):
        x, y = torch.randn(5, 4), torch.randint(0, 3, (5,))
        y[0] = 7 if index in (3, 6) else 1
        assert _call(fast, model, x, y)[0] is _call(step, original, x, y)[0]
        assert_close(model.weight.grad, original.weight.grad)
        assert (original.weight.grad == 0).all() == (index in (3, 6))
