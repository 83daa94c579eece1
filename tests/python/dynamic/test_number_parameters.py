# SPDX-License-Identifier: Apache-2.0
"""Parameters of functions that are floats of C++ in PyTorch: one program for all values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import hostjit

VALUES = tuple(0.1 + 0.07 * index for index in range(12))

FUNCTIONS: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "dropout": lambda x, t: (
        functional.dropout(x, t) + functional.dropout(x * 2, p=t, training=True)
    ),
    "no dropout": lambda x, t: functional.dropout(x, t, training=False) * t,
    "attention": lambda x, t: functional.scaled_dot_product_attention(
        x.view(2, 1, 4, 8), x.view(2, 1, 4, 8), x.view(2, 1, 4, 8), scale=t, is_causal=True
    ),
    "smoothed labels": lambda x, t: functional.cross_entropy(x, LABELS, label_smoothing=t),
    "weighted labels": lambda x, t: functional.cross_entropy(
        x, LABELS, WEIGHTS, ignore_index=3, label_smoothing=t
    ),
    "a sum of losses": lambda x, t: functional.cross_entropy(
        x, LABELS, WEIGHTS, ignore_index=3, reduction="sum", label_smoothing=t
    ),
    "losses": lambda x, t: functional.cross_entropy(
        x, LABELS, ignore_index=3, reduction="none", label_smoothing=t
    ),
    "losses of pixels": lambda x, t: functional.cross_entropy(
        x.view(2, 4, 2, 4), LABELS.view(2, 2, 2).repeat(1, 1, 2) % 4, label_smoothing=t
    ),
    "Huber loss": lambda x, t: functional.huber_loss(x, x.detach().roll(1, 0), delta=t),
    "Huber losses": lambda x, t: functional.huber_loss(
        x, x.detach().roll(1, 0), reduction="none", delta=t
    ),
    "smooth loss": lambda x, t: functional.smooth_l1_loss(x, x.detach().roll(1, 0), beta=t),
    "layer norm": lambda x, t: functional.layer_norm(x, (8,), WEIGHTS, WEIGHTS, eps=t),
    "layer norm over two dims": lambda x, t: functional.layer_norm(x, (8, 8), eps=t),
    "root mean square norm": lambda x, t: functional.rms_norm(x, (8,), WEIGHTS, eps=t),
    "attention with dropout": lambda x, t: functional.scaled_dot_product_attention(
        x.view(2, 1, 4, 8), x.view(2, 1, 4, 8), x.view(2, 1, 4, 8), dropout_p=t, is_causal=True
    ),
    "averages of a batch norm": lambda x, t: averages(x, t),
    "padding": lambda x, t: (
        functional.pad(x, (1, -2, 0, 3), value=t)
        + functional.pad(x, (0, -1, 1, 2), "constant", t * 2)
    ),
    "no numbers": lambda x, t: torch.nan_to_num(x + SPECIAL, nan=t, posinf=t * 2),
    "celu": lambda x, t: functional.celu(x, t) + functional.celu(x, alpha=t * 2),
    "norm of an order": lambda x, t: x.norm(p=t + 2.05) + x.relu().norm(2.05 + t, 1, keepdim=True),
    "norm over dims": lambda x, t: torch.linalg.vector_norm(x, t / 4 + 1.1, dim=-1),
    "normalized": lambda x, t: functional.normalize(x, p=t + 2.05),
    "logit": lambda x, t: torch.logit(x.sigmoid(), t / 3) + torch.special.logit(x.sigmoid(), t / 4),
    "distances": lambda x, t: torch.cdist(x, OTHER[:5], p=t + 1.05),
    "pairs": lambda x, t: (
        functional.pairwise_distance(x, OTHER, p=t + 1.05)
        + functional.pairwise_distance(x, OTHER, eps=t, keepdim=True)
    ),
    "cosines": lambda x, t: functional.cosine_similarity(x, OTHER, eps=4 * t),
    "loss of cosines": lambda x, t: functional.cosine_embedding_loss(x, OTHER, SIGNS[0], margin=t),
    "triplets": lambda x, t: functional.triplet_margin_loss(
        x, OTHER, OTHER.roll(1, 0), margin=t, swap=True, reduction="none"
    ),
    "ranking loss": lambda x, t: functional.margin_ranking_loss(x, OTHER, SIGNS, margin=t),
    "hinge loss": lambda x, t: functional.hinge_embedding_loss(x, SIGNS, margin=t, reduction="sum"),
    "margin loss": lambda x, t: functional.multi_margin_loss(x, LABELS, margin=t),
    "margin loss of squares": lambda x, t: functional.multi_margin_loss(
        x, LABELS, p=2, margin=t, weight=WEIGHTS, reduction="none"
    ),
    "Poisson loss": lambda x, t: functional.poisson_nll_loss(
        x.abs(), OTHER.abs() * 2, log_input=False, full=True, eps=t
    ),
    "group norm": lambda x, t: functional.group_norm(x.view(2, 8, 4), 4, WEIGHTS, WEIGHTS, eps=t),
    "instance norm": lambda x, t: functional.instance_norm(x.view(2, 4, 8), eps=t),
    "averages of an instance norm": lambda x, t: averages_of_instances(x, t),
    "batch norm": lambda x, t: averages(x, 0.1, eps=t),
    "batch norm in evaluation": lambda x, t: functional.batch_norm(
        x, WEIGHTS - 1, WEIGHTS, WEIGHTS, WEIGHTS, eps=t
    ),
    "rrelu": lambda x, t: functional.rrelu(x, t, t * 2),
    "quantiles": lambda x, t: torch.quantile(x, t) + torch.quantile(x, t, dim=0, keepdim=True),
    "close": lambda x, t: torch.isclose(x, OTHER, rtol=t, atol=t) * x,
    "power of float64": lambda x, t: torch.float_power(x.abs(), t),
    "array": lambda x, t: torch.asarray(t) * x,
    "alpha dropout": lambda x, t: functional.alpha_dropout(x, t, training=True),
    "dropout of channels": lambda x, t: (
        functional.dropout1d(x.view(2, 4, 8), t) + functional.dropout2d(x.view(2, 2, 2, 8), t).sum()
    ),
    "alpha dropout of channels": lambda x, t: functional.feature_alpha_dropout(
        x.view(2, 4, 8), t, training=True
    ),
    "range": lambda x, t: torch.arange(t, 5.0, 0.25)[:8] * x + torch.arange(8 * t + 2)[1],
}


def averages(x: torch.Tensor, momentum: float, eps: float = 1e-5) -> torch.Tensor:
    mean, variance = torch.zeros(8, dtype=x.dtype), torch.ones(8, dtype=x.dtype)
    result = functional.batch_norm(x, mean, variance, None, None, True, momentum, eps)
    return result + mean + variance


def averages_of_instances(x: torch.Tensor, momentum: float) -> torch.Tensor:
    mean, variance = torch.zeros(4, dtype=x.dtype), torch.ones(4, dtype=x.dtype)
    result = functional.instance_norm(x.view(2, 4, 8), mean, variance, momentum=momentum)
    return result.sum(2) + mean + variance


DISTANCES = ("distances", "pairs")
OTHER = torch.randn(8, 8, generator=torch.Generator().manual_seed(3))
SIGNS = torch.ones(8, 8).copysign(OTHER)
SPECIAL = torch.tensor([0.0, math.nan, 0.0, math.inf, 0.0, -math.inf, 0.0, 0.0])
LABELS = torch.arange(8)
WEIGHTS = torch.linspace(0.5, 2.0, 8)


def outcome(call: Callable[..., Any], x: torch.Tensor, t: float) -> list[Any]:
    """The result, and the gradient where there is one, or the class of the error."""
    torch.manual_seed(1)
    x = x.clone().requires_grad_(torch.is_grad_enabled())
    try:
        result = call(x, t)
    except (RuntimeError, ValueError) as error:
        return [type(error)]
    if not result.requires_grad:
        return [result]
    (result * torch.arange(result.numel()).view(result.shape)).sum().backward()
    return [result.detach(), x.grad]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_program_for_all_values(name: str, gradients: bool, runtime: str) -> None:
    is_old = torch.__version__ < (2, 12)
    if is_old and name == "quantiles":
        pytest.skip("PyTorch looks into a tensor for a number that is known: the first call breaks")
    function = FUNCTIONS[name]
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    x = torch.randn(8, 8)
    with torch.set_grad_enabled(gradients):
        for t in VALUES:
            torch.testing.assert_close(outcome(compiled, x, t), outcome(function, x, t))
    # There, distances have a program on either side of an order that PyTorch computes otherwise.
    assert 2 <= len(compiled.specializations) <= 2 + (is_old and name in DISTANCES)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:hostjit")
def test_values_at_the_ends_and_beyond(name: str, gradients: bool) -> None:
    function, x = FUNCTIONS[name], torch.randn(8, 8)
    compiled = hostjit.compile(function)
    with torch.set_grad_enabled(gradients):
        for t in (0.5, 0.25, 0.0, 1.0, -0.5, 2.0, 0.125, 1e-9, math.inf, math.nan):
            if (name == "attention" and not t > 0.0) or (name == "no dropout" and math.isnan(t)):
                continue  # known values have other results there, too
            found, expected = outcome(compiled, x, t), outcome(function, x, t)
            if isinstance(expected[0], type):
                assert found == expected
            else:
                torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    function, x = FUNCTIONS[name], torch.randn(8, 8).to(dtype)
    if "labels" in name or name in ("a sum of losses", "no numbers") or "norm" in name:
        pytest.skip("its weights are float32")
    compiled = hostjit.compile(function)
    for t in VALUES[:4]:
        found, expected = outcome(compiled, x, t), outcome(function, x, t)
        if isinstance(expected[0], type):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected)


@torch.enable_grad()
def test_a_schedule_of_a_module(runtime: str) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Tanh(), nn.Dropout(0.5))
    compiled, x = hostjit.compile(model, runtime=runtime, fallback=False), torch.randn(4, 8)
    for t in VALUES:
        model[1].p, model[3].p = t, t / 2
        gradients = []
        for call in (compiled, model):
            model.zero_grad()
            torch.manual_seed(3)
            call(x).square().sum().backward()
            gradients.append([parameter.grad.clone() for parameter in model.parameters()])
        torch.testing.assert_close(*gradients)
    assert len(compiled.specializations) == 2
    model.eval()
    torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize(
    "condition",
    [
        lambda t: math.exp(-t) < 0.5,
        lambda t: round(t * 10) % 2,
        lambda t: math.sqrt(t) > 0.75 and math.log(t) < -0.1,
        lambda t: int(t * 8) > 3,
    ],
)
def test_a_decision_on_a_number_that_python_makes(condition: Any, runtime: str) -> None:
    def function(x: torch.Tensor, t: float) -> torch.Tensor:
        return x * 2 if condition(t) else x * math.exp(t)

    compiled, x = hostjit.compile(function, runtime=runtime, fallback=False), torch.randn(7)
    for t in (*VALUES, *VALUES, 0.0 + 1e-9, 0.999):
        torch.testing.assert_close(compiled(x, t), function(x, t))
    assert len(compiled.specializations) <= 4
