# SPDX-License-Identifier: Apache-2.0
"""What is written in place keeps its strides, and what is computed of it has eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit


def mask(x: Tensor) -> tuple[Tensor, ...]:
    y = x.diagonal(0, 0, 1) * 2.0
    y.masked_fill_(y > 0, 3)
    return y, y + y


def add_at_indices(x: Tensor) -> tuple[Tensor, ...]:
    x.index_add_(-1, torch.arange(x.shape[-1]) % 2, x + x)
    part = x[:2]
    return part, part + part


def fill_at_indices(x: Tensor) -> tuple[Tensor, ...]:
    y = x.mT * 1
    y.index_fill_(0, torch.tensor([0]), 2.0)
    return y, y * 2


def scatter(x: Tensor) -> tuple[Tensor, ...]:
    y = x.mT * 1
    y.scatter_(0, torch.zeros(1, 2, 3, dtype=torch.int64), 2.0)
    return y, y * 2


def write_a_view(x: Tensor) -> tuple[Tensor, ...]:
    y = x.mT * 1
    part = y[1:]
    part.masked_fill_(part > 0, 3)
    return y, part, y * 2


@torch.no_grad()
@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("function", [mask, add_at_indices, fill_at_indices, scatter, write_a_view])
def test_as_eager(function: Callable[..., Any], compile: Callable[..., Any]) -> None:
    fast = compile(function)
    for rows in (6, 6, 7, 8):
        given = [torch.arange(20.0 * rows).reshape(4, rows, 5).permute(2, 1, 0) for _ in range(2)]
        found, expected = fast(given[0] - 50), function(given[1] - 50)
        torch.testing.assert_close(found, expected)
        assert [y.stride() for y in found] == [y.stride() for y in expected]


def transpose_in_place(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y.t_()
    y.mul_(3)
    return y, y + 1


def squeeze_and_swap_in_place(x: Tensor) -> tuple[Tensor, ...]:
    y = x[None] * 2
    y.squeeze_(0)
    y.swapaxes_(0, 1)
    return y, y + 1


def spectrum(x: Tensor) -> tuple[Tensor, ...]:
    spectra = torch.stft(x, 4, 2, window=torch.ones(4), return_complex=True)
    return spectra, spectra.abs(), spectra.angle(), spectra.real.angle()


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize(
    "function", [transpose_in_place, squeeze_and_swap_in_place, spectrum], ids=lambda f: f.__name__
)
def test_layout_changed_in_place(
    function: Callable[..., Any], compile: Callable[..., Any], requires_grad: bool
) -> None:
    """What changes the layout alone does so where two sizes are equal, too."""
    fast = compile(function)
    for columns in (4, 4, 4, 6, 4):
        x = torch.arange(4.0 * columns).view(4, columns).requires_grad_(requires_grad)
        found, expected = fast(x), function(x)
        torch.testing.assert_close(found, expected)
        assert [y.stride() for y in found] == [y.stride() for y in expected]


LAYOUTS: dict[str, Callable[[int], Tensor]] = {
    "behind others": lambda rows: torch.arange(4.0 * rows + 4).reshape(-1, 4)[1:],
    "every second": lambda rows: torch.arange(8.0 * rows).reshape(rows, 4, 2)[..., 1],
    "columns": lambda rows: torch.arange(7.0 * rows).reshape(rows, 7)[:, 2:6],
    "transposed": lambda rows: torch.arange(5.0 * rows).reshape(5, rows)[1:].T,
}


def views_behind(x: Tensor) -> tuple[Tensor, ...]:
    x.mul_(3)
    return x.detach(), x[1:], x[0], x.T


def whole(x: Tensor) -> tuple[Tensor, ...]:
    x.mul_(3)
    return (x.detach(),)


def views_before(x: Tensor) -> tuple[Tensor, ...]:
    part = x[1:]
    part.mul_(3)
    return part.T, x.view_as(x)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [views_behind, views_before, whole])
def test_views_of_a_written_input(
    function: Callable[..., Any], dynamic: bool | None, layout: str
) -> None:
    fast = hostjit.compile(function, dynamic=dynamic)
    for rows in (5, 5, 7):
        ours, theirs = LAYOUTS[layout](rows), LAYOUTS[layout](rows)
        found, expected = fast(ours), function(theirs)
        torch.testing.assert_close((found, ours), (expected, theirs))
        for y, wanted in zip(found, expected, strict=True):
            assert (y.stride(), y.storage_offset()) == (wanted.stride(), wanted.storage_offset())
            assert y.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()
