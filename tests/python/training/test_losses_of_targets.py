# SPDX-License-Identifier: Apache-2.0
"""Losses and shrinkage that traces of PyTorch take apart into something else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

import hostjit

Step = Callable[..., Tensor]


def through_torch(function: Step) -> Any:
    return torch.compile(function, backend="hostjit", fullgraph=True)


@pytest.fixture(params=[hostjit.compile, through_torch])
def make(request: pytest.FixtureRequest) -> Any:
    torch._dynamo.reset()
    return request.param


def value_and_gradient(function: Step, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    loss = function(x, *rest)
    weights = torch.linspace(0.5, 1.5, loss.numel()).reshape(loss.shape)
    return loss.detach(), torch.autograd.grad(loss, x, weights)[0]


def check(make: Any, function: Step, x: Tensor, *rest: Any) -> None:
    fast = make(function)
    assert_close(
        value_and_gradient(fast, x, *rest), value_and_gradient(function, x, *rest), equal_nan=True
    )
    with torch.no_grad():
        assert_close(fast(x, *rest), function(x, *rest), equal_nan=True)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(
    "targets",
    [
        [[1, 0, -1, 2, 2], [1, 2, -1, 4, 4], [-1, 0, 1, 2, 3]],
        [[0, 1, 2, 3, 4], [4, 4, 4, 4, 4], [2, -1, -1, -1, -1]],
        [3, -1, 0, 1, 2],
        [-1] * 5,
    ],
)
def test_labels_end_at_the_first_that_is_negative(
    make: Any, targets: list[Any], reduction: str
) -> None:
    target = torch.tensor(targets)
    x = torch.randn(target.shape, generator=torch.Generator().manual_seed(0))
    check(make, lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), x, target)


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("target", [3, [3], [3, 0]])
def test_a_margin_loss_of_one_row_is_a_scalar(
    make: Any, target: Any, p: int, reduction: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    index, weight = torch.tensor(target), torch.rand(5, generator=generator)
    x = torch.randn((2, 5) if index.numel() == 2 else (5,), generator=generator)
    check(
        make,
        lambda x, t, w: F.multi_margin_loss(x, t, p=p, weight=w, reduction=reduction),
        x,
        index,
        weight,
    )


@pytest.mark.parametrize("shrink", [F.softshrink, F.hardshrink])
def test_nan_has_the_gradient_of_eager_mode(make: Any, shrink: Step) -> None:
    special = [math.nan, math.inf, -math.inf, 0.5, -0.5, 0.0, -0.0, 1.0, -1.0]
    check(make, lambda x: shrink(x, 0.5), torch.tensor(special))
