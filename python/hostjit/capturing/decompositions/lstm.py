# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks, unrolled into the linear layers and pointwise operators of their steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hostjit.capturing.open_sizes import is_open, some, typical

__all__ = ["lstm"]

Tensor = torch.Tensor

# Steps of recurrent networks that are unrolled, over all layers and directions, and multiply-adds
# of one of them.
_MAX_STEPS = 64
_MAX_STEP_MULTIPLY_ADDS = 1 << 19

_FLOATS = (torch.float32, torch.float64)


def _lstm_layer(
    x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor], *, reverse: bool
) -> tuple[list[Tensor], Tensor, Tensor]:
    """One direction of one layer over `x` (time, batch, features); its outputs by time.

    `weights` are those of the input, of the state, both biases if there are such, and that of the
    projection if there is one: their number tells.
    """
    weight_ih, weight_hh, *others = weights
    bias_ih, bias_hh = others[:2] if len(others) > 1 else (None, None)
    projection = others[-1] if len(others) % 2 else None
    # The part of the gates that does not wait for the step before, for all steps at once.
    from_input = torch.nn.functional.linear(x, weight_ih, bias_ih).unbind(0)
    outputs = []
    for gates in reversed(from_input) if reverse else from_input:
        gates = gates + torch.nn.functional.linear(h, weight_hh, bias_hh)
        take, forget, cell, give = gates.split(c.shape[-1], 1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(take) * torch.tanh(cell)
        h = torch.sigmoid(give) * torch.tanh(c)
        if projection is not None:
            h = torch.nn.functional.linear(h, projection)
        outputs.append(h)
    return outputs[::-1] if reverse else outputs, h, c


def lstm(
    sequence: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """nn.LSTM, unrolled: where that pays, and where there is no operator for it anyway."""
    projected = hx[0].shape[-1] != hx[1].shape[-1]
    num_runs = num_layers * (2 if bidirectional else 1)
    per_run = (4 if has_biases else 2) + (1 if projected else 0)
    x = sequence.transpose(0, 1) if batch_first else sequence
    plain = (
        x.dtype in _FLOATS
        and x.dim() == 3
        and some(x.shape)
        and len(params) == num_runs * per_run
        and not (train and dropout)
    )
    if not plain:
        return NotImplemented
    if is_open(x.shape[0]):
        return NotImplemented
    is_long = x.shape[0] * num_runs > _MAX_STEPS
    is_large = typical(x.shape[1]) * params[1].numel() > _MAX_STEP_MULTIPLY_ADDS
    if x.dtype == torch.float32 and not projected and (is_long or is_large):
        return NotImplemented
    last_h: list[Tensor] = []
    last_c: list[Tensor] = []
    for _layer in range(num_layers):
        directions = []
        for reverse in (False, True) if bidirectional else (False,):
            run = len(last_h)
            weights = params[run * per_run : (run + 1) * per_run]
            outputs, h, c = _lstm_layer(
                x, hx[0].select(0, run), hx[1].select(0, run), weights, reverse=reverse
            )
            directions.append(outputs)
            last_h.append(h)
            last_c.append(c)
        steps = [torch.cat(parts, -1) for parts in zip(*directions, strict=True)]
        x = torch.stack(steps if bidirectional else directions[0])
    output = x.transpose(0, 1) if batch_first else x
    return output, torch.stack(last_h), torch.stack(last_c)
