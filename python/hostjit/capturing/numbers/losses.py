# SPDX-License-Identifier: Apache-2.0
"""Losses with a parameter that is an open number; see `parameters`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hostjit.capturing.numbers.parameter_function import NumberFunction, is_exact

__all__ = ["LOSSES", "cross_entropy"]


def cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """`cross_entropy` of classes with smooth labels."""
    dim = 0 if input.dim() == 1 else 1
    classes = input.shape[dim]
    logits = functional.log_softmax(input, dim)
    loss = functional.nll_loss(
        logits, target, weight, ignore_index=ignore_index, reduction=reduction
    )
    if weight is None:
        smooth = -logits.sum(dim)
    else:
        shape = [1] * input.dim()
        shape[dim] = classes
        smooth = -(logits * weight.view(shape)).sum(dim)
    ignored = target == ignore_index
    smooth = smooth.masked_fill(ignored, 0.0)
    if reduction == "mean" and weight is None:
        smooth = smooth.sum() / (~ignored).sum().to(smooth.dtype)
    elif reduction == "mean" and weight is not None:
        known = target.masked_fill(ignored, 0)
        total = weight.gather(0, known.flatten()).view(known.shape).masked_fill(ignored, 0.0).sum()
        smooth = smooth.sum() / total
    elif reduction == "sum":
        smooth = smooth.sum()
    return loss * (1 - label_smoothing) + smooth * (label_smoothing / classes)


def _smooths(given: Mapping[str, Any]) -> bool:
    target = given["target"]
    return (
        _reduces(given)
        and isinstance(target, Tensor)
        and not target.is_floating_point()
        and 0.0 < given["label_smoothing"] <= 1.0
    )


def _reduces(given: Mapping[str, Any]) -> bool:
    is_new = given.get("size_average") is None and given.get("reduce") is None
    return is_new and given["reduction"] in ("mean", "sum", "none")


def _huber_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    distance = (input - target).abs()
    loss = torch.where(
        distance <= delta, 0.5 * distance * distance, delta * (distance - 0.5 * delta)
    )
    return _reduced(loss, reduction)


def _smooth_l1_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    distance = (input - target).abs()
    loss = torch.where(distance < beta, 0.5 * distance * distance / beta, distance - 0.5 * beta)
    return _reduced(loss, reduction)


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def _is_distance(name: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a loss is of the distances of elements, from a positive number of this name on."""

    def applies(given: Mapping[str, Any]) -> bool:
        return (
            _reduces(given)
            and given.get("weight") is None
            and _fit(given, "input", "target")
            and given[name] > 0.0
        )

    return applies


def _fit(given: Mapping[str, Any], *names: str) -> bool:
    """Whether these are tensors of one shape and one exact dtype."""
    first, *others = (given[name] for name in names)
    return is_exact(*names)(given) and all(
        x is not None and x.shape == first.shape and x.dtype == first.dtype for x in others
    )


def _hinge_embedding_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    below = torch.where(target != 1, (margin - input).clamp_min(0), 0.0)
    return _reduced(below + torch.where(target != -1, input, 0.0), reduction)


def _margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    return _reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


def _cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    tiny = 1e-12
    magnitudes = ((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)
    cosine = (input1 * input2).sum(-1) / magnitudes.sqrt()
    apart = torch.where(target == -1, (cosine - margin).clamp_min(0), 0.0)
    return _reduced(apart + torch.where(target == 1, 1 - cosine, 0.0), reduction)


def _compares_cosines(given: Mapping[str, Any]) -> bool:
    x, target = given["input1"], given["target"]
    fits = _reduces(given) and _fit(given, "input1", "input2")
    return fits and isinstance(target, Tensor) and target.shape == x.shape[:-1] and x.dim() < 3


def _triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    near = _pairwise_distance(anchor, positive, p, eps)
    far = _pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = torch.minimum(far, _pairwise_distance(positive, negative, p, eps))
    return _reduced((margin + near - far).clamp_min(0), reduction)


def _pairwise_distance(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    eps: float = 1e-6,
    keepdim: bool = False,
) -> Tensor:
    result: Tensor = torch.linalg.vector_norm(x1 - x2 + eps, p, -1, keepdim)
    return result


def _multi_margin_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    labels = target.unsqueeze(1)
    beyond = torch.relu(margin - input.gather(1, labels) + input)
    if p == 2:
        beyond = beyond * beyond
    if weight is not None:
        beyond = beyond * weight.gather(0, target).unsqueeze(1)
    others = torch.arange(input.shape[1], device=input.device) != labels
    return _reduced(torch.where(others, beyond, 0.0).sum(1) / input.shape[1], reduction)


def _has_labels(given: Mapping[str, Any]) -> bool:
    x, target, weight = given["input"], given["target"], given["weight"]
    return (
        _reduces(given)
        and is_exact("input", "weight")(given)
        and x.dim() == 2
        and isinstance(target, Tensor)
        and target.dtype is torch.int64
        and target.shape == x.shape[:1]
        and (weight is None or (weight.shape == x.shape[1:] and weight.dtype is x.dtype))
        and given["p"] in (1, 2)
        and bool(x.numel() > 0)
    )


def _poisson_nll_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    rate = input.exp() if log_input else input
    loss = rate - target * (input if log_input else (input + eps).log())
    if full:
        logarithm = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + logarithm.masked_fill(target <= 1, 0)
    return _reduced(loss, reduction)


def _fits(*names: str, positive: str = "") -> Callable[[Mapping[str, Any]], bool]:
    def applies(given: Mapping[str, Any]) -> bool:
        return (
            ("reduction" not in given or _reduces(given))
            and _fit(given, *names)
            and (not positive or bool(given[positive] > 0.0))
        )

    return applies


_Rules = tuple[NumberFunction, ...]
LOSSES: dict[Callable[..., Any], _Rules] = {
    functional.cosine_embedding_loss: (
        NumberFunction(("margin",), _cosine_embedding_loss, _compares_cosines),
    ),
    functional.cross_entropy: (NumberFunction(("label_smoothing",), cross_entropy, _smooths),),
    functional.hinge_embedding_loss: (
        NumberFunction(("margin",), _hinge_embedding_loss, _fits("input", "target")),
    ),
    functional.huber_loss: (NumberFunction(("delta",), _huber_loss, _is_distance("delta")),),
    functional.margin_ranking_loss: (
        NumberFunction(("margin",), _margin_ranking_loss, _fits("input1", "input2", "target")),
    ),
    functional.multi_margin_loss: (NumberFunction(("margin",), _multi_margin_loss, _has_labels),),
    functional.pairwise_distance: (
        NumberFunction(("p", "eps"), _pairwise_distance, _fits("x1", "x2")),
    ),
    functional.poisson_nll_loss: (
        NumberFunction(("eps",), _poisson_nll_loss, _fits("input", "target")),
    ),
    functional.smooth_l1_loss: (NumberFunction(("beta",), _smooth_l1_loss, _is_distance("beta")),),
    functional.triplet_margin_loss: (
        NumberFunction(
            ("margin", "p", "eps"),
            _triplet_margin_loss,
            _fits("anchor", "positive", "negative", positive="margin"),
        ),
    ),
}
