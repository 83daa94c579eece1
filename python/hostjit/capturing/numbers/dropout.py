# SPDX-License-Identifier: Apache-2.0
"""Dropout of elements and of whole channels with an open probability; see `parameters`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hostjit.capturing.numbers.open_draws import DRAWS
from hostjit.capturing.numbers.open_dropout import DROPOUT
from hostjit.capturing.numbers.parameter_function import NumberFunction, is_exact

__all__ = ["DROPOUTS"]

_SELU_SCALE = 1.7580993408473766  # of what is dropped


def _dropout(
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    result: Tensor = DROPOUT(input, p)[0] if training else input
    return result


def _drops(given: Mapping[str, Any]) -> bool:
    if not given["training"]:
        return bool(0.0 <= given["p"] <= 1.0)
    return not given["inplace"] and 0.0 < given["p"] < 1.0


def _dropout_of_channels(
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    if not training:
        return input
    ones = input.new_ones([*input.shape[:2], *[1] * (input.dim() - 2)])
    if input.is_cuda:
        return input * (_kept(ones, p) / (1.0 - p))
    scaled: Tensor = DROPOUT(ones, p)[0]
    return input * scaled


def _has_channels(*dims: int) -> Callable[[Mapping[str, Any]], bool]:
    """Whether the input has a batch, and as many dims as PyTorch does not warn of."""

    def applies(given: Mapping[str, Any]) -> bool:
        return is_exact("input")(given) and given["input"].dim() in dims and _drops(given)

    return applies


def _alpha_dropout(
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    return _alpha(input, torch.ones_like(input), p) if training else input


def _feature_alpha_dropout(
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    ones = input.new_ones([*input.shape[:2], *[1] * (input.dim() - 2)])
    return _alpha(input, ones, p) if training else input


def _alpha(x: Tensor, ones: Tensor, p: float) -> Tensor:
    """Keep mean and variance: what is dropped is a constant, and all is scaled and moved."""
    kept = _kept(ones, p)
    scale = 1.0 / math.sqrt((_SELU_SCALE * _SELU_SCALE * p + 1.0) * (1.0 - p))
    return x * (kept * scale) + ((kept - 1.0) * (_SELU_SCALE * scale) + _SELU_SCALE * scale * p)


def _kept(ones: Tensor, p: float) -> Tensor:
    """What is kept, as ones; on CUDA the kernel for dropout draws other numbers than eager does."""
    if ones.is_cuda:
        drawn: Tensor = DRAWS["bernoulli"](ones, 1.0 - p)
        return drawn
    mask: Tensor = DROPOUT(ones, p)[1]
    return mask.to(ones.dtype)


_P = ("p",)
DROPOUTS: dict[Callable[..., Any], tuple[NumberFunction, ...]] = {
    functional.dropout: (NumberFunction(_P, _dropout, _drops),),
    functional.dropout1d: (NumberFunction(_P, _dropout_of_channels, _has_channels(3)),),
    functional.dropout2d: (NumberFunction(_P, _dropout_of_channels, _has_channels(4)),),
    functional.dropout3d: (NumberFunction(_P, _dropout_of_channels, _has_channels(5)),),
    functional.alpha_dropout: (NumberFunction(_P, _alpha_dropout, _has_channels(*range(1, 9))),),
    functional.feature_alpha_dropout: (
        NumberFunction(_P, _feature_alpha_dropout, _has_channels(*range(2, 9))),
    ),
}
