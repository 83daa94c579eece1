# SPDX-License-Identifier: Apache-2.0
"""Graphs of torch.compile in which operators find sizes and numbers: compiled in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from beside_eager import check
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings(
    "error:hostjit. .* runs eagerly", "ignore:hostjit. .* runs in parts"
)


@pytest.fixture(autouse=True)
def _all_in_the_graph() -> Iterator[None]:
    settings = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with torch._dynamo.config.patch(settings):
        yield


def selects(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    found = x[mask].sin()
    return found * 2, found.sum() * x


def counts(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    count = mask.sum().item()
    torch._check(count >= 0)
    torch._check(count < 10)
    return torch.zeros(int(count)) + x[mask].sin(), x * x.detach().sum().item()


def writes(x: Tensor, mask: Tensor) -> tuple[int, Tensor]:
    y = x * 1
    y[mask] = 0
    y.add_(1)
    return y.nonzero().shape[0], y[:2]


def casts(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x[mask][:, None]
        z = y @ y.t()
    return z.detach(), x[:, None] @ x[None]


MASKS = ([1, 0, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 0, 0])


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("function", [selects, counts, writes, casts])
def test_what_is_found_differs(function: Callable[..., Any], gradients: bool, runtime: str) -> None:
    if function is casts and torch.__version__ < (2, 12):
        pytest.skip("Dynamo fails where it starts over inside of an autocast: it runs eagerly")
    with torch.set_grad_enabled(gradients):
        calls = [
            (torch.rand(5, requires_grad=gradients), torch.tensor(mask).bool()) for mask in MASKS
        ]
        check(function, *calls, runtime=runtime, may_fall_back=True, fullgraph=True)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        chosen = weights.argmax(-1)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(-1)
            shares = weights[rows, number, None]
            result = result.index_add(0, rows, expert(x[rows]) * shares)
        return result


def test_a_mixture_of_experts(runtime: str) -> None:
    module = Experts()
    calls = [(module, torch.randn(rows, 4)) for rows in (6, 6, 8, 5)]
    check(lambda module, x: module(x), *calls, runtime=runtime, may_fall_back=True, fullgraph=True)


def test_without_fallback_it_is_an_error() -> None:
    compiled = torch.compile(selects, backend="hostjit", options={"fallback": False})
    with pytest.raises(hostjit.CaptureError, match="depends on the values of a tensor"):
        compiled(torch.rand(5), torch.tensor(MASKS[0]).bool())
