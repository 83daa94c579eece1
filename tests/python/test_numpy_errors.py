# SPDX-License-Identifier: Apache-2.0
"""`x.numpy()` of tensors that NumPy has no array for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")


def conjugate(x: Tensor) -> Any:
    try:
        torch.complex(x, x).detach().conj().numpy()
    except RuntimeError:
        return x + 1
    return x - 1


def negative(x: Tensor) -> Any:
    try:
        torch.complex(x, x).detach().conj().imag.numpy()
    except RuntimeError:
        return x + 1
    return x - 1


def on_meta(x: Tensor) -> Any:
    try:
        x.detach().to("meta").numpy()
    except TypeError:
        return x + 1
    return x - 1


def bfloat16(x: Tensor) -> Any:
    try:
        x.detach().bfloat16().numpy()
    except TypeError:
        return x + 1
    return x - 1


def with_gradient(x: Tensor) -> Any:
    try:
        (x * 2).numpy()
    except RuntimeError:
        return x + 1
    return x - 1


def forced(x: Tensor) -> Any:
    return torch.from_numpy((x * 2).numpy(force=True).copy()) + 1


def plain(x: Tensor) -> Any:
    return torch.from_numpy((x.detach() * 2).numpy()) + 1


@pytest.mark.parametrize("way", ["compile", "backend"])
@pytest.mark.parametrize("gradients", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "function",
    [conjugate, negative, on_meta, bfloat16, with_gradient, forced, plain],
    ids=lambda function: function.__name__,
)
def test_as_eager(function: Callable[[Tensor], Any], gradients: bool, way: str) -> None:
    is_compile = way == "compile"
    fast = hostjit.compile(function) if is_compile else torch.compile(function, backend="hostjit")
    for _ in range(3):
        x = torch.randn(3, requires_grad=gradients)
        torch.testing.assert_close(fast(x), function(x))
