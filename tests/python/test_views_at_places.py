# SPDX-License-Identifier: Apache-2.0
"""Views at places that int tensors without dims tell, which are seen: as results, or by writes."""

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
PLACES = (0, 1, 3, -1, 2, 4, -4, 1, 5, -5)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def row(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    return x[i]


def part(x: Tensor, i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x[i, 1:], x[:, i - 1] * y.sum()


def row_that_was_written(x: Tensor, i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x[i] = y
    return x[i], y + 1


def written_behind(x: Tensor, i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    view = x[i]
    x += 1
    view[1:] *= 2
    return view, x * 2


def by_a_computed_place(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    view = x[(i + 5) % 5]
    view.add_(y)
    return view


FUNCTIONS = (row, part, row_that_was_written, written_behind, by_a_computed_place)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16])
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_program(function: Function, runtime: str, dtype: torch.dtype) -> None:
    fast: Any = hostjit.compile(function, runtime=runtime, fallback=False)
    with torch.no_grad():
        for place in PLACES:
            args = torch.randn(5, 5), torch.tensor(place, dtype=dtype), torch.randn(5)
            ours, eager = copy.deepcopy(args), copy.deepcopy(args)
            try:
                expected = function(*eager)
            except IndexError as error:
                with pytest.raises(IndexError, match=str(error)):
                    fast(*ours)
                continue
            found = fast(*ours)
            assert_close(found, expected)
            assert_close(ours, eager)
            results = (x if isinstance(x, tuple) else (x,) for x in (found, expected))
            for mine, other in zip(*results, strict=True):
                assert (mine._base is ours[0]) == (other._base is eager[0])
                assert mine.storage_offset() == other.storage_offset()
    # There may be one more before.
    assert len(fast.specializations) <= 4 + (torch.__version__ < (2, 12))


def test_a_row_of_a_buffer() -> None:
    class Ring(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(8, 3))

        def forward(self, y: Tensor, i: Tensor) -> Tensor:
            self.rows[i] = y
            return self.rows[i]

    ours = Ring()
    eager = copy.deepcopy(ours)
    fast: Any = hostjit.compile(ours, fallback=False)
    with torch.no_grad():
        for step in range(20):
            y, i = torch.randn(3), torch.tensor(step % 8)
            found = fast(y, i)
            assert_close(found, eager(y, i))
            assert found._base is ours.rows
    assert_close(ours.state_dict(), eager.state_dict())
    assert len(fast.specializations) <= 3
