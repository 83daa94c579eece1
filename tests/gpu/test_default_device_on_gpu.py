# SPDX-License-Identifier: Apache-2.0
"""Programs whose author wrote `torch.set_default_device`, or `with torch.device(...)`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from beside_eager_on_gpu import assert_same
from torch import Tensor, nn

import hostjit


@contextlib.contextmanager
def set_default(device: str) -> Iterator[None]:
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@pytest.fixture(params=[set_default, torch.device])
def default(request: pytest.FixtureRequest) -> Any:
    return request.param


def made(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.tanh() + torch.ones(4), torch.arange(4) * 2


@torch.no_grad()
def test_new_tensors_are_on_it(default: Any, runtime: str, device: str) -> None:
    compiled = hostjit.compile(made, runtime=runtime)
    for place in (device, "cpu", device):
        with default(place):
            x = torch.randn(4)
            for _ in range(3):
                assert_same(compiled(x), made(x))
    assert len(compiled.specializations) == len({device, "cpu"})


def test_a_training_loop(default: Any, runtime: str, device: str) -> None:
    def trained(compile: Any) -> list[Tensor]:
        with default(device):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 2))
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            run = compile(model)
            for _ in range(4):
                loss = run(torch.randn(5, 8)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            return [loss.detach(), *(p.detach() for p in model.parameters())]

    found = trained(lambda model: hostjit.compile(model, runtime=runtime))
    assert_same(found, trained(lambda model: model), rtol=1e-3, atol=3e-3)
