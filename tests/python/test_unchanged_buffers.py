# SPDX-License-Identifier: Apache-2.0
"""Conversions that leave a buffer as it is, put in the place of the buffer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit


class Positions(nn.Module):
    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.table = nn.Buffer(torch.randn(16, 4), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        self.table = self.table.to(device=x.device, dtype=x.dtype)
        return x + self.table[: x.shape[0]]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_buffer_that_is_converted_to_what_it_is(persistent: bool) -> None:
    torch.manual_seed(0)
    model = Positions(persistent)
    fast, table = hostjit.compile(model, fallback=False), model.table
    for size in (3, 5, 7):
        x = torch.randn(size, 4)
        assert_close(fast(x), x + table[:size])
    assert len(fast.specializations) <= 2
    assert model.table is table
    assert list(model.state_dict()) == (["table"] if persistent else [])


def test_a_buffer_that_is_converted_to_something_else() -> None:
    torch.manual_seed(0)
    model, eager = Positions(False), Positions(False)
    eager.table = model.table
    fast = hostjit.compile(model)
    for dtype in (torch.float64, torch.float64, torch.float32, torch.float32):
        x = torch.randn(3, 4, dtype=dtype)
        assert_close(fast(x), eager(x))
        assert model.table.dtype == eager.table.dtype
        assert list(model.state_dict()) == list(eager.state_dict())
