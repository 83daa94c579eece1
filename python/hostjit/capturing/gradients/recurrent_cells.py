# SPDX-License-Identifier: Apache-2.0
"""Steps of `nn.RNN`, `nn.GRU` and `nn.LSTM`, and of the gradients that go back through them.

The formulas of the steps are those in the documentation of these modules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["GRU", "LSTM", "RNN_RELU", "RNN_TANH", "Cell"]

Tensors = Sequence[Tensor]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One kind of recurrent layer: what it does between its matrix products.

    Its states are those of one step, (batch, hidden_size). The first of them is what the step
    gives, before it is projected.

    Attributes:
        step: takes the states, the part of the gates that is computed of the input, and that of the
            state. Returns the next states, and what `step_back` needs besides.
        operands: takes the states that the steps began with, those that they gave, and what they
            kept, by time. Returns which of these `step_back` takes.
        step_back: takes the gradients of the next states, and its operands at that step. Returns
            the gradients of both parts of the gates, one where they are the same, and of the states
            what does not come by the gates, None for nothing.
    """

    step: Callable[[Tensors, Tensor, Tensor], tuple[list[Tensor], list[Tensor]]]
    operands: Callable[[Tensor, Tensor, Tensors], list[Tensor]]
    step_back: Callable[[Tensors, Tensors], tuple[list[Tensor], list[Tensor | None]]]


def _of_sigmoid(grad: Tensor, result: Tensor) -> Tensor:
    return grad * result * (1 - result)


def _of_tanh(grad: Tensor, result: Tensor) -> Tensor:
    return grad * (1 - result * result)


def _of_relu(grad: Tensor, result: Tensor) -> Tensor:
    found: Tensor = torch.ops.aten.threshold_backward.default(grad, result, 0)
    return found


def _rnn(function: Callable[[Tensor], Tensor], back: Callable[[Tensor, Tensor], Tensor]) -> Cell:
    def step(
        states: Tensors, of_input: Tensor, of_state: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        return [function(of_state + of_input)], []

    def step_back(grads: Tensors, operands: Tensors) -> tuple[list[Tensor], list[Tensor | None]]:
        gates = back(grads[0], operands[0])
        return [gates], [None]

    return Cell(step, lambda before, after, kept: [after], step_back)


def _gru_step(
    states: Tensors, of_input: Tensor, of_state: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    reset_of_input, update_of_input, new_of_input = of_input.chunk(3, -1)
    reset_of_state, update_of_state, new_of_state = of_state.chunk(3, -1)
    reset = (reset_of_state + reset_of_input).sigmoid()
    update = (update_of_state + update_of_input).sigmoid()
    new = (new_of_input + new_of_state * reset).tanh()
    return [(states[0] - new) * update + new], [reset, update, new, new_of_state.clone()]


def _gru_step_back(grads: Tensors, operands: Tensors) -> tuple[list[Tensor], list[Tensor | None]]:
    before, reset, update, new, new_of_state = operands
    of_new = _of_tanh(grads[0] * (1 - update), new)
    of_update = _of_sigmoid(grads[0] * (before - new), update)
    of_reset = _of_sigmoid(of_new * new_of_state, reset)
    of_input = torch.cat([of_reset, of_update, of_new], -1)
    of_state = torch.cat([of_reset, of_update, of_new * reset], -1)
    return [of_input, of_state], [grads[0] * update]


def _lstm_step(
    states: Tensors, of_input: Tensor, of_state: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    before = states[1]
    take, forget, new, give = (of_state + of_input).chunk(4, -1)
    take, forget, new, give = take.sigmoid(), forget.sigmoid(), new.tanh(), give.sigmoid()
    cell = forget * before + take * new
    shown = cell.tanh()
    return [give * shown, cell], [before.clone(), take, forget, new, give, shown]


def _lstm_step_back(grads: Tensors, operands: Tensors) -> tuple[list[Tensor], list[Tensor | None]]:
    before, take, forget, new, give, shown = operands
    of_cell = grads[1] + _of_tanh(grads[0] * give, shown)
    gates = torch.cat(
        [
            _of_sigmoid(of_cell * new, take),
            _of_sigmoid(of_cell * before, forget),
            _of_tanh(of_cell * take, new),
            _of_sigmoid(grads[0] * shown, give),
        ],
        -1,
    )
    return [gates], [None, of_cell * forget]


RNN_TANH = _rnn(torch.tanh, _of_tanh)
RNN_RELU = _rnn(torch.relu, _of_relu)
GRU = Cell(_gru_step, lambda before, after, kept: [before, *kept], _gru_step_back)
LSTM = Cell(_lstm_step, lambda before, after, kept: [*kept], _lstm_step_back)
