# SPDX-License-Identifier: Apache-2.0
"""Autocast reaches what composite operators are made of, as in eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from bfloat16_lstm import skip_without
from torch import Tensor, nn

import hostjit

FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "einsum": lambda x: torch.einsum("bij,bjk->bik", x, x),
    "tensordot": lambda x: torch.tensordot(x[0], x[1], 1),
    "multi_dot": lambda x: torch.linalg.multi_dot([x[0], x[1], x[2]]),
    "inner": lambda x: torch.inner(x[0], x[1]),
    "cell": nn.RNNCell(6, 5).requires_grad_(False),
    "rule of its own": lambda x: nn.functional.cosine_similarity(x @ x, x),
    "RNN": nn.RNN(6, 5).requires_grad_(False),
    "long RNN": lambda x: FUNCTIONS["RNN"](x.repeat(4, 1, 1)),
    "GRU": nn.GRU(6, 5, num_layers=2, dropout=0.5).eval().requires_grad_(False),
    "LSTM": nn.LSTM(6, 5).requires_grad_(False),
    "long LSTM": lambda x: FUNCTIONS["LSTM"](x.repeat(4, 1, 1)),
    "LSTM with projections": nn.LSTM(6, 5, proj_size=3).requires_grad_(False),
}
MODES = [torch.enable_grad, torch.no_grad, torch.inference_mode]


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_operators_are_made_of_is_cast(
    name: str, mode: Callable[[], Any], make: Callable[..., hostjit.CompiledFunction]
) -> None:
    skip_without(name)

    def function(x: Tensor) -> Any:
        with torch.autocast("cpu"):
            result = FUNCTIONS[name](x)
            first = result if isinstance(result, Tensor) else result[0]
            return result, first.dtype.itemsize

    compiled = make(function, fallback=False)
    with mode():
        for _ in range(3):
            x = torch.randn(6, 6, 6) / 4
            x = x[0] if name == "cell" else x
            torch.testing.assert_close(compiled(x), function(x), rtol=0.02, atol=0.02)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM", "LSTM with projections"])
@torch.enable_grad()
def test_training_of_networks(name: str, make: Callable[..., hostjit.CompiledFunction]) -> None:
    skip_without(name)
    network = copy.deepcopy(FUNCTIONS[name])
    assert isinstance(network, nn.Module)
    network.requires_grad_(True)

    def function(x: Tensor) -> Any:
        with torch.autocast("cpu"):
            return network(x)[0]

    compiled = make(function)
    for _ in range(3):
        x = torch.randn(4, 2, 6)
        found = []
        for call in (compiled, function):
            result = call(x)
            gradients = torch.autograd.grad(result.float().sum(), list(network.parameters()))
            found.append((result, gradients))
        torch.testing.assert_close(*found, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("mode", MODES)
def test_where_autocast_ends(
    mode: Callable[[], Any], make: Callable[..., hostjit.CompiledFunction]
) -> None:
    def function(x: Tensor) -> Any:
        before = torch.inner(x, x)
        with torch.autocast("cpu"):
            cast = torch.inner(x, x)
            with torch.autocast("cpu", enabled=False):
                plain = torch.inner(x, x)
        return before, cast, plain, torch.inner(x, x)

    compiled = make(function, fallback=False)
    with mode():
        for _ in range(3):
            x = torch.randn(6, 6)
            torch.testing.assert_close(compiled(x), function(x))
