# SPDX-License-Identifier: Apache-2.0
"""`nn.LSTM`: the linear layers and pointwise operators of its steps, or a loop of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._decomp import decompositions

from hostjit.capturing.decompositions.recurrent import MAX_STEPS, Scan, layer_by_loop
from hostjit.capturing.errors import CaptureError
from hostjit.capturing.open_sizes import is_open, known, some, typical
from hostjit.replacements import replaced_attribute

__all__ = ["last_states_as_given", "lstm"]

Tensor = torch.Tensor

# Where oneDNN has an operator, steps of more multiply-adds are left to it: of single sequences, or
# few over all layers and directions, and others.
_FEW_STEPS = 64
_MAX_STEP_MULTIPLY_ADDS = 1 << 19
_MAX_MULTIPLY_ADDS_OF_MANY_STEPS = 1 << 16

_FLOATS = (torch.float32, torch.float64)


def lstm(
    scan: Scan,
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
    """nn.LSTM, unrolled where it is short, else by a loop, or left to oneDNN where that pays.

    `scan` records loops.
    """
    x = sequence.transpose(0, 1) if batch_first else sequence
    projected = hx[0].shape[-1] != hx[1].shape[-1]
    num_runs = num_layers * (2 if bidirectional else 1)
    per_run = (4 if has_biases else 2) + (1 if projected else 0)
    if x.dim() != 3 or not some(x.shape) or len(params) != num_runs * per_run:
        return NotImplemented
    weights = [params[run * per_run : (run + 1) * per_run] for run in range(num_runs)]
    if _is_onednns(sequence, hx, weights, x.shape):
        return NotImplemented
    if is_open(x.shape[0]) or x.shape[0] * num_runs > MAX_STEPS or _lacks_onednn(x):
        layer = functools.partial(_layer_by_loop, scan)
        options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
        states = list(zip(hx[0].unbind(0), hx[1].unbind(0), strict=True))
        try:
            output, last = decompositions._rnn_helper(sequence, states, weights, *options, layer)
        except CaptureError:  # states of another dtype than the first, as under autocast
            return NotImplemented
        return output, *(torch.stack(parts) for parts in zip(*last, strict=True))
    if x.dtype not in _FLOATS or (train and dropout):
        return NotImplemented
    return _unrolled(x, hx, weights, bidirectional, batch_first)


def last_states_as_given() -> replaced_attribute:
    """Have PyTorch's decomposition of a layer return states of the shapes that it was given.

    That of torch 2.11 has a dim more in those of several sequences.
    """
    layer: Any = decompositions.one_layer_lstm

    def corrected(x: Tensor, hidden: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        output, states = layer(x, hidden, *args, **kwargs)
        pairs = zip(states, hidden, strict=True)
        return output, tuple(state.reshape(given.shape) for state, given in pairs)

    return replaced_attribute(decompositions, "one_layer_lstm", corrected)


def _is_onednns(
    sequence: Tensor,
    hx: Sequence[Tensor],
    weights: Sequence[Sequence[Tensor]],
    shape: Sequence[Any],
) -> bool:
    """Whether an LSTM is left to oneDNN; `shape` is that of its input, by time."""
    choice = decompositions.select_one_layer_lstm_function(sequence, hx, weights)
    if choice is not decompositions.mkldnn_one_layer_lstm:
        return False
    if _lacks_onednn(sequence):
        return False
    if sequence.dtype not in _FLOATS or torch.is_autocast_enabled("cpu"):
        return True  # it rounds less often
    time, batch, _ = shape
    has_few_steps = not is_open(time) and time * len(weights) <= _FEW_STEPS
    is_any = has_few_steps or known(batch == 1)
    most = _MAX_STEP_MULTIPLY_ADDS if is_any else _MAX_MULTIPLY_ADDS_OF_MANY_STEPS
    return typical(batch) * weights[0][1].numel() > most


def _lacks_onednn(sequence: Tensor) -> bool:
    """Whether oneDNN has no LSTM of this type for this CPU; eager mode asks, the choice does not.

    Under autocast eager mode does not ask either, and raises.
    """
    is_cast = torch.is_autocast_enabled("cpu")
    is_bfloat16 = sequence.dtype is torch.bfloat16 and not is_cast
    return is_bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _unrolled(
    x: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Sequence[Tensor]],
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """All layers and directions, each with its weights, over `x` (time, batch, features)."""
    last_h: list[Tensor] = []
    last_c: list[Tensor] = []
    while len(last_h) < len(params):
        directions = []
        for reverse in (False, True) if bidirectional else (False,):
            run = len(last_h)
            states = (hx[0].select(0, run), hx[1].select(0, run))
            outputs, h, c = _layer_unrolled(x, *states, params[run], reverse=reverse)
            directions.append(outputs)
            last_h.append(h)
            last_c.append(c)
        steps = [torch.cat(parts, -1) for parts in zip(*directions, strict=True)]
        x = torch.stack(steps if bidirectional else directions[0])
    output = x.transpose(0, 1) if batch_first else x
    return output, torch.stack(last_h), torch.stack(last_c)


def _layer_by_loop(
    scan: Scan,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    reverse: bool = False,
) -> tuple[Tensor, list[Tensor]]:
    """One direction of one layer: its outputs, by time, and its last states."""
    own = params[: 4 if has_biases else 2]
    projection = params[len(own) :]

    def step(states: Sequence[Tensor], gates: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        hidden, cell = states
        weight, *others = weights
        bias = others[0] if has_biases else None
        weight_hr = others[-1] if projection else None
        return [*decompositions.lstm_cell(gates, hidden, cell, weight, bias, weight_hr, 2)]

    return layer_by_loop(scan, step, x, states, own[::2], [*own[1::2], *projection], reverse)


def _layer_unrolled(
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
