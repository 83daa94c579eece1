# SPDX-License-Identifier: Apache-2.0
"""Objects whose steps may fail; pytest rewrites no assertion in this file."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Filter:
    def __init__(self) -> None:
        self.state, self.faults = torch.zeros(2, 2), 0
        self.log: list[Tensor] = []


class SafeStop(Filter):
    def step(self, x: Tensor) -> Tensor:
        try:
            self.state = 0.5 * self.state + x
            assert torch.isfinite(self.state).all(), "not finite"
            return self.state * 2
        except AssertionError:
            self.faults += 1
            self.state = torch.zeros(2, 2)
            return torch.zeros(2, 2)


class Checked(Filter):
    def check(self, x: Tensor) -> None:
        assert torch.isfinite(x).all()

    def step(self, x: Tensor) -> Tensor:
        self.faults += 1
        self.state = x
        self.check(x)
        return x * 2


class WithText(Filter):
    def step(self, x: Tensor) -> Tensor:
        assert torch.isfinite(x).all(), "not finite"
        return x * 2


class InHelper(Checked):
    def step(self, x: Tensor) -> Tensor:
        try:
            self.check(x)
        except AssertionError:
            return x.nan_to_num()
        return x * 2


class Decomposed(Filter):
    def step(self, x: Tensor) -> Tensor:
        self.faults += 1
        self.state = x
        return torch.linalg.cholesky(x + 1e-3 * torch.eye(2))


class Logging(Filter):
    def step(self, x: Tensor) -> Tensor:
        self.log.append(x)
        return torch.linalg.cholesky(x + 1e-3 * torch.eye(2))


class Module(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.faults = nn.Linear(2, 2), 0
        self.state, self.log = torch.zeros(2, 2), []
        nn.init.ones_(self.layer.weight)

    def step(self, x: Tensor) -> Tensor:
        self.faults += 1
        self.state = self.layer(x)
        assert torch.isfinite(self.state).all(), "not finite"
        y: Tensor = self.state * 2
        return y
