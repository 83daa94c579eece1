# SPDX-License-Identifier: Apache-2.0
"""`nn.GRU` and `nn.RNN`: their steps one after the other, or a loop where they are many."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decompositions

from hostjit.capturing.errors import CaptureError
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.open_sizes import is_open, some

__all__ = ["RECURRENT_CELLS", "recurrent_network"]

aten = torch.ops.aten
Tensor = torch.Tensor

# Steps that are unrolled, over all layers and directions.
_MAX_STEPS = 16

# cell(gates, hidden, weight and bias of the input, weight and bias of the state): the next state.
# `gates` have what the input adds to them.
Cell = Callable[..., Tensor]

# What records `torch.ops.higher_order.scan`, with its arguments.
Scan = Callable[..., Sequence[Tensor]]

# The steps of PyTorch's decompositions.
RECURRENT_CELLS: dict[torch._ops.OpOverload, Cell] = {
    aten.gru.input: decompositions.gru_cell,
    aten.rnn_relu.input: decompositions.rnn_cell(torch.relu),
    aten.rnn_tanh.input: decompositions.rnn_cell(torch.tanh),
}


def recurrent_network(
    cell: Cell,
    scan: Scan,
    sequence: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """One of the operators of `RECURRENT_CELLS`, which has its arguments behind the first two.

    A sequence of open length is walked by a loop, and so is a long one, whose program would grow
    with it.
    """

    def run(layer: Callable[..., Any]) -> tuple[Tensor, Tensor]:
        weights = decompositions.gather_params(params, has_biases, False)
        output, states = decompositions._rnn_helper(
            sequence,
            hx.unbind(0),
            weights,
            has_biases,
            num_layers,
            dropout,
            train,
            bidirectional,
            batch_first,
            layer,
        )
        return output, torch.stack(states, 0)

    length = sequence.shape[1 if batch_first else 0]
    num_runs = num_layers * (2 if bidirectional else 1)
    is_long = is_open(length) or length * num_runs > _MAX_STEPS
    if is_long and some(sequence.shape):
        try:
            return run(functools.partial(_layer_by_loop, cell, scan))
        except CaptureError:  # states of another dtype than the first, as under autocast
            pass
    return run(functools.partial(decompositions.one_layer_rnn, hidden_fn=cell))


def _layer_by_loop(
    cell: Cell,
    scan: Scan,
    x: Tensor,
    hidden: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """One direction of one layer: its outputs, by time, and its last state."""
    weight_ih, weight_hh = params[:2]
    bias_ih, bias_hh = params[2:4] if has_biases else (None, None)
    # The part of the gates that does not wait for the step before, for all steps at once.
    gates = torch.nn.functional.linear(x, weight_ih, bias_ih)
    gates = gates.flip(0) if reverse else gates

    def step(state: Tensor, gates: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        state = cell(gates, state, None, None, weights[0], weights[1] if has_biases else None)
        return state, state.squeeze(0)

    shared = [weight_hh] if bias_hh is None else [weight_hh, bias_hh]
    # Each state has the strides of the next one.
    first = hidden.contiguous().view(-1).view(1, *hidden.shape)
    last, output = scan((_graph_of(step, 2 + len(shared)), [first], [gates], shared), {})
    return (output.flip(0) if reverse else output), last.squeeze(0)


def _graph_of(step: Callable[..., tuple[Tensor, ...]], count: int) -> torch.fx.GraphModule:
    """A graph that calls a function of as many tensors."""
    graph = torch.fx.Graph()
    operands = tuple(graph.placeholder(f"operand_{number}") for number in range(count))
    graph.output(graph.call_function(step, operands))
    return graph_module({}, graph)
