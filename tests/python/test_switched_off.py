# SPDX-License-Identifier: Apache-2.0
"""With the knob `compile` off, what is compiled, captured or torch.compiled runs eagerly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import hostjit

OFF = "compile"


def _torch_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="hostjit")


@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture])
def test_the_function_itself_runs(make: Callable[..., Any]) -> None:
    ran: list[int] = []

    class Noting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not torch.compiler.is_compiling():
                ran.append(1)
            return x * 2

    fast = make(Noting())
    with hostjit.knobs(disable=OFF):
        for _ in range(4):
            x = torch.randn(3)
            assert_close(fast(x), x * 2)
    assert len(ran) == 4
    assert not fast.specializations


@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture, _torch_compiled])
@pytest.mark.parametrize("first", ["on", "off"])
def test_switching_in_the_middle(make: Callable[..., Any], first: str) -> None:
    model, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    fast = make(model)
    for number in range(12):
        x, y = torch.randn(4, 3, requires_grad=True), torch.empty(0)
        y = x.detach().clone().requires_grad_()
        if (number // 3 % 2 == 0) == (first == "on"):
            found = fast(x)
        else:
            with hostjit.knobs(disable=OFF):
                found = fast(x)
        expected = twin(y)
        assert_close(found, expected)
        # Backward runs on the other side of the switch, too.
        with hostjit.knobs(disable=OFF if number % 2 else ""):
            found.square().sum().backward()
        expected.square().sum().backward()
        assert_close(x.grad, y.grad)
        assert_close(model.weight.grad, twin.weight.grad)


def test_a_graph_of_dynamo_is_not_compiled() -> None:
    with hostjit.knobs(disable=OFF, enable="profile_ranges"), torch.no_grad():
        fast = _torch_compiled(lambda x: torch.tanh(x) + 1)
        with torch.profiler.profile() as profile:
            x = torch.randn(5)
            assert_close(fast(x), torch.tanh(x) + 1)
    names = {event.key for event in profile.key_averages()}
    assert "aten::tanh" in names


def test_a_block_inside_a_compiled_call() -> None:
    inner = hostjit.compile(lambda x: x * 3)

    def outer(x: torch.Tensor) -> torch.Tensor:
        with hostjit.knobs(disable=OFF):
            return inner(x) + 1

    for _ in range(3):
        x = torch.randn(3)
        assert_close(outer(x), x * 3 + 1)
    assert not inner.specializations


def test_optimizer_steps_go_on() -> None:
    weights = []
    for pattern in ((False,) * 6, (False, True, False, True, True, False)):
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.Adam([weight], lr=0.1)
        step = hostjit.compile(optimizer.step)
        for off in pattern:
            weight.grad = weight.detach() * 2
            with hostjit.knobs(disable=OFF if off else ""):
                step()
        weights.append(weight.detach())
    assert_close(weights[0], weights[1])


def test_programs_that_are_nothing_else_run_as_ever() -> None:
    program = """
    program @double(%x: tensor<f32, [3], cpu>) {
      %r = allocate() : tensor<f32, [3], cpu>
      copy(source=%x, out=%r)
      return %r
    }
    """
    with hostjit.knobs(disable=OFF):
        x = torch.randn(3)
        assert_close(hostjit.compile(program)(x), x)


def test_the_environment_switches_a_process() -> None:
    code = """
import torch, hostjit
fast = hostjit.compile(lambda x: x * 2)
replayed = hostjit.capture(lambda x: x * 2)
for _ in range(3):
    assert fast(torch.ones(2)).tolist() == replayed(torch.ones(2)).tolist() == [2, 2]
print(len(fast.specializations), replayed.captured)
"""
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "HOSTJIT_DISABLE": OFF},
    )
    assert found.stdout == "0 None\n", found.stderr
