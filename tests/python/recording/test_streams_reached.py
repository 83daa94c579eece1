# SPDX-License-Identifier: Apache-2.0
"""Training steps of objects that keep a file, which the step may write to."""

from __future__ import annotations

import io
import pathlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit


class Trainer:
    def __init__(self, log: io.TextIOWrapper | None, every: int) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.log = log
        self.every = every
        self.count = 0

    def step(self, x: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.net(x).square().mean()
        loss.backward()
        self.optimizer.step()
        if self.log is not None and self.every:
            self.log.write("a step\n")
        return loss.detach()


def _beside_eager(path: pathlib.Path, every: int) -> Any:
    with open(path, "w") as one, open(path, "w") as other:
        eager, recorded = Trainer(one, every), Trainer(other, every)
        fast = hostjit.capture(recorded.step)
        for _ in range(6):
            x = torch.randn(3, 4)
            assert_close(fast(x), eager.step(x))
            assert other.tell() == one.tell()
    return fast


def test_one_that_is_not_written_to_is_in_nobodys_way(tmp_path: pathlib.Path) -> None:
    assert _beside_eager(tmp_path / "log", every=0).captured is not None


@pytest.mark.filterwarnings("ignore:hostjit")
def test_one_that_is_written_to_is_written_to_at_each_call(tmp_path: pathlib.Path) -> None:
    assert _beside_eager(tmp_path / "log", every=1).captured is None
