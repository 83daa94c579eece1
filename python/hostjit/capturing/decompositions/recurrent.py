# SPDX-License-Identifier: Apache-2.0
"""`nn.GRU` and `nn.RNN`: their steps one after the other, or a loop where they are many.

`nn.LSTM` (`decompositions/lstm.py`) walks its sequences by the same loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decompositions

from hostjit.capturing.errors import CaptureError
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.open_sizes import is_open, some

__all__ = [
    "MAX_STEPS",
    "RECURRENT_CELLS",
    "RECURRENT_NETWORKS",
    "Scan",
    "graph_of",
    "layer_by_loop",
    "recurrent_network",
]

aten = torch.ops.aten
Tensor = torch.Tensor

# Steps that are unrolled, over all layers and directions.
MAX_STEPS = 16

# cell(gates, hidden, weight and bias of the input, weight and bias of the state): the next state.
# `gates` have what the input adds to them.
Cell = Callable[..., Tensor]

# step(states, gates, weights): the next states. `weights` are what all steps share.
Step = Callable[[Sequence[Tensor], Tensor, Sequence[Tensor]], list[Tensor]]

# What records `torch.ops.higher_order.scan`, with its arguments.
Scan = Callable[..., Sequence[Tensor]]

# The steps of PyTorch's decompositions.
RECURRENT_CELLS: dict[torch._ops.OpOverload, Cell] = {
    aten.gru.input: decompositions.gru_cell,
    aten.rnn_relu.input: decompositions.rnn_cell(torch.relu),
    aten.rnn_tanh.input: decompositions.rnn_cell(torch.tanh),
}
RECURRENT_NETWORKS: tuple[torch._ops.OpOverload, ...] = (aten.lstm.input, *RECURRENT_CELLS)


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
    is_long = is_open(length) or length * num_runs > MAX_STEPS
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

    def step(states: Sequence[Tensor], gates: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        return [cell(gates, states[0], None, None, weights[0], weights[1] if has_biases else None)]

    own = params[: 4 if has_biases else 2]
    output, (last,) = layer_by_loop(scan, step, x, [hidden], own[::2], own[1::2], reverse)
    return output, last


def layer_by_loop(
    scan: Scan,
    step: Step,
    x: Tensor,
    states: Sequence[Tensor],
    of_input: Sequence[Tensor],
    of_state: Sequence[Tensor],
    reverse: bool,
) -> tuple[Tensor, list[Tensor]]:
    """One direction of one layer: its outputs, by time, and its last states.

    Args:
        scan: records the loop.
        step: one step. Its states have a dimension in front, of one element.
        x: the input, by time.
        states: the first states. The output of a step is the first of those that it makes.
        of_input: the weight of the input, and the bias if there is one.
        of_state: what the steps get in `weights`.
        reverse: from the end to the beginning.
    """
    # The part of the gates that does not wait for the step before, for all steps at once.
    gates = torch.nn.functional.linear(x, *of_input)
    gates = gates.flip(0) if reverse else gates
    count = len(states)

    def turn(*operands: Tensor) -> tuple[Tensor, ...]:
        news = step(operands[:count], operands[count], operands[count + 1 :])
        return *news, news[0].squeeze(0)

    # Each state has the strides of the next one.
    first = [state.contiguous().view(-1).view(1, *state.shape) for state in states]
    graph = graph_of(turn, count + 1 + len(of_state))
    *last, output = scan((graph, first, [gates], [*of_state]), {})
    return (output.flip(0) if reverse else output), [state.squeeze(0) for state in last]


def graph_of(step: Callable[..., tuple[Tensor, ...]], count: int) -> torch.fx.GraphModule:
    """A graph that calls a function of as many tensors."""
    graph = torch.fx.Graph()
    operands = tuple(graph.placeholder(f"operand_{number}") for number in range(count))
    graph.output(graph.call_function(step, operands))
    return graph_module({}, graph)
