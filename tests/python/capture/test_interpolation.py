# SPDX-License-Identifier: Apache-2.0
"""Interpolation is one call of ATen's operator, forward and backward, in eager's layout."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import hostjit

# The operator that each mode is, by the number of dims that it resamples.
OPERATORS = {
    ("nearest", 1): "upsample_nearest1d",
    ("nearest", 2): "upsample_nearest2d",
    ("nearest", 3): "upsample_nearest3d",
    ("nearest-exact", 1): "_upsample_nearest_exact1d",
    ("nearest-exact", 2): "_upsample_nearest_exact2d",
    ("nearest-exact", 3): "_upsample_nearest_exact3d",
    ("linear", 1): "upsample_linear1d",
    ("bilinear", 2): "upsample_bilinear2d",
    ("bicubic", 2): "upsample_bicubic2d",
    ("trilinear", 3): "upsample_trilinear3d",
}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def operands(dims: int, batch: int = 2) -> list[Tensor]:
    torch.manual_seed(0)
    x = torch.randn(batch, 3, *(5, 4, 6)[:dims])
    found = [x, torch.randn(3, batch, *x.shape[2:]).transpose(0, 1)]
    if dims in LAST:
        found.append(x.to(memory_format=LAST[dims]))
    return found


def resample(mode: str, **options: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: functional.interpolate(x, mode=mode, **options)


def calls(program: Any) -> list[str]:
    return re.findall(r"aten::(\w+)", str(program))


def compare(fast: Callable[[Tensor], Tensor], eager: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Compare values and gradients, with their strides."""
    ours, theirs = x.detach().requires_grad_(), x.detach().requires_grad_()
    found, expected = fast(ours), eager(theirs)
    torch.testing.assert_close(found, expected, check_stride=True)
    gradient = torch.randn_like(expected)
    found.backward(gradient)
    expected.backward(gradient)
    torch.testing.assert_close(ours.grad, theirs.grad, check_stride=True)


@pytest.mark.parametrize(("mode", "dims"), OPERATORS)
def test_interpolation_is_one_call(mode: str, dims: int) -> None:
    for options in ({"scale_factor": 1.7}, {"size": (7, 3, 5)[:dims]}):
        eager = resample(mode, **options)
        for x in operands(dims):
            fast = hostjit.compile(eager, fallback=False)
            with torch.no_grad():
                torch.testing.assert_close(fast(x), eager(x), check_stride=True)
            assert calls(fast.host_ir()) == [OPERATORS[mode, dims]]


@pytest.mark.parametrize(("mode", "dims"), OPERATORS)
def test_its_gradient_is_one_call(mode: str, dims: int) -> None:
    eager = resample(mode, scale_factor=2)
    for x in operands(dims):
        fast = hostjit.compile(eager, fallback=False)
        compare(fast, eager, x)
        backward = fast.specializations[0].backward
        assert backward is not None
        assert calls(backward.program.host_ir()) == [f"{OPERATORS[mode, dims]}_backward"]


@pytest.mark.parametrize(("mode", "dims"), OPERATORS)
def test_its_sizes_may_be_open(mode: str, dims: int) -> None:
    eager = resample(mode, scale_factor=2)
    for small, large in zip(operands(dims), operands(dims, batch=4), strict=True):
        fast = hostjit.compile(eager, dynamic=True, fallback=False)
        compare(fast, eager, small)
        compare(fast, eager, large)
        assert len(fast.specializations) == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_through_torch_compile(dynamic: bool) -> None:
    for mode in ("nearest", "bilinear", "bicubic"):
        eager = resample(mode, scale_factor=2)
        fast = torch.compile(eager, backend="hostjit", dynamic=dynamic, options={"fallback": False})
        for x in operands(2):
            compare(fast, eager, x)
