# SPDX-License-Identifier: Apache-2.0
"""Derivatives of operators are kernels and copies, and what eager computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import check
from torch import Tensor, nn
from torch.nn import functional as F

import hostjit


def leaf(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*sizes, dtype=dtype, requires_grad=True)


def calls_in_backward(function: Callable[..., Any], *inputs: Tensor) -> int:
    """Call compiled, and count the operators that its backward pass calls through PyTorch."""
    fast = hostjit.compile(function)
    fast(*inputs)
    plan = fast.specializations[0].backward
    assert plan is not None
    return plan.program.host_ir().count("aten_call")


@pytest.mark.parametrize(
    "function",
    [
        *(F.elu, F.gelu, F.hardsigmoid, F.hardswish, F.hardtanh, F.leaky_relu, F.logsigmoid),
        *(F.mish, F.relu, F.silu, F.softplus, torch.sigmoid, torch.tanh),
        lambda x: F.dropout(x, 0.3),
        lambda x: F.layer_norm(x, (5,), x[0].detach(), x[1].detach()),
        lambda x: F.softmax(x, 1),
        lambda x: F.log_softmax(x, 0),
        lambda x: F.mse_loss(x, x.detach() * 2),
        lambda x: F.huber_loss(x, x.detach() * 2 + 1, reduction="sum"),
        lambda x: F.smooth_l1_loss(x, x.detach() * 2 + 1, reduction="none"),
        lambda x: F.binary_cross_entropy(x.sigmoid(), x.detach().sigmoid() / 2),
        lambda x: x.sin()[:, 1],
        lambda x: x.sin()[-2],
        lambda x: x.sin()[1:-1, ::2],
        lambda x: x.sin()[:, -3:],
        lambda x: x.sin()[3:3],
    ],
)
def test_derivatives_are_kernels(function: Callable[..., Any]) -> None:
    call = (leaf(4, 5),)
    for runtime in ("jit", "evaluator"):
        check(function, call, runtime=runtime, compile=hostjit.compile)
    assert calls_in_backward(function, *call) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        *(F.elu, F.selu, F.celu, F.hardsigmoid, F.hardswish, F.hardtanh, F.leaky_relu, F.relu),
        *(F.logsigmoid, F.mish, F.relu6, F.silu, F.softplus, torch.sigmoid, torch.tanh),
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: F.smooth_l1_loss(x, torch.ones_like(x), reduction="none", beta=0.5),
        lambda x: F.huber_loss(x, torch.ones_like(x), reduction="none"),
        lambda x: F.mse_loss(x, torch.ones_like(x), reduction="none"),
    ],
)
def test_derivatives_at_special_values(
    function: Callable[..., Any], dtype: torch.dtype, runtime: str
) -> None:
    values = [
        math.nan,
        math.inf,
        0.0,
        1e-20,
        0.5,
        1.0,
        1.5,
        3.0,
        6.0,
        17.0,
        21.0,
        88.0,
        89.0,
        200.0,
    ]
    both = torch.tensor([*values, *(-value for value in values)], dtype=dtype)
    # Whole vectors: where eager computes one by one, NaN may take another branch.
    call = (both.repeat_interleave(64).requires_grad_(),)
    fast = hostjit.compile(lambda x: function(x), runtime=runtime)
    gradients = []
    for run in (fast, function):
        given = torch.full_like(both.repeat_interleave(64), 0.75)
        gradients.append(torch.autograd.grad(run(*call), call, given)[0])
    torch.testing.assert_close(*gradients, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sizes", [(5,), (4, 5), (2, 5, 3), (2, 5, 3, 4)], ids=str)
def test_losses_of_classes(
    sizes: tuple[int, ...], weighted: bool, reduction: str, dtype: torch.dtype, runtime: str
) -> None:
    weight = torch.rand(5, dtype=dtype) if weighted else None
    target = torch.randint(5, sizes[:1] + sizes[2:] if len(sizes) > 1 else ())
    target.view(-1)[0] = 3

    def function(x: Tensor, target: Tensor) -> Tensor:
        # The value that is ignored may be no class.
        return F.nll_loss(x, target, weight, reduction=reduction, ignore_index=3)

    call = (leaf(*sizes, dtype=dtype), target)
    check(function, call, runtime=runtime, compile=hostjit.compile)
    assert calls_in_backward(function, *call) == 0


def test_a_loss_of_nothing_but_ignored_targets(runtime: str) -> None:
    target = torch.full((4,), -100)
    for reduction in ("mean", "sum", "none"):

        def function(x: Tensor, reduction: str = reduction) -> Tensor:
            return F.cross_entropy(x, target, reduction=reduction)

        check(function, (leaf(4, 5),), runtime=runtime, compile=hostjit.compile)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("sizes", [(6, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 2, 2)], ids=str)
def test_batch_norms(
    sizes: tuple[int, ...], affine: bool, training: bool, dtype: torch.dtype, runtime: str
) -> None:
    kinds: list[type[Any]] = [nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d]
    module = kinds[len(sizes) - 2](3, affine=affine).to(dtype).train(training)
    module.running_mean.normal_()
    module.running_var.uniform_(0.5, 2)
    call = (module, leaf(*sizes, dtype=dtype))
    check(lambda module, x: module(x), call, runtime=runtime, compile=hostjit.compile)
    assert calls_in_backward(module, call[1]) == 0


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("sizes", [(3, 4), (0, 4)], ids=str)
def test_dropout(p: float, training: bool, sizes: tuple[int, ...], runtime: str) -> None:
    def function(x: Tensor) -> Tensor:
        return F.dropout(x, p, training)

    call = (leaf(*sizes),)
    check(function, call, runtime=runtime, compile=hostjit.compile)
    check(function, call, runtime=runtime)
