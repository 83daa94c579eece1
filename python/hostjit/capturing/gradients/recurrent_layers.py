# SPDX-License-Identifier: Apache-2.0
"""`nn.RNN`, `nn.GRU` and `nn.LSTM` with gradients: loops over their sequences, there and back.

A loop is one program for any number of steps, as long as one step. The gradients of weights are
matrix products over all steps, behind the loop.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions

from hostjit.capturing.decompositions.lstm import last_states_as_given
from hostjit.capturing.decompositions.recurrent import RECURRENT_CELLS, graph_of
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.gradients.recurrent_cells import GRU, LSTM, RNN_RELU, RNN_TANH, Cell
from hostjit.capturing.open_sizes import some
from hostjit.capturing.python_kernels import python_kernels_changed

__all__ = ["recurrent_networks_with_gradients"]

aten = torch.ops.aten

_CELLS = {
    aten.lstm.input: LSTM,
    aten.gru.input: GRU,
    aten.rnn_tanh.input: RNN_TANH,
    aten.rnn_relu.input: RNN_RELU,
}
_KEYS = (
    torch._C.DispatchKey.CompositeImplicitAutograd,
    torch._C.DispatchKey.Autograd,
)


@contextlib.contextmanager
def recurrent_networks_with_gradients() -> Iterator[None]:
    """Trace recurrent networks such that what is traced can be differentiated, once."""
    kernels = {
        operator: dict.fromkeys(_KEYS, functools.partial(_network, operator)) for operator in _CELLS
    }
    with python_kernels_changed(kernels), last_states_as_given():
        yield


def _network(
    operator: torch._ops.OpOverload,
    sequence: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    states = [hx] if isinstance(hx, Tensor) else hx
    is_projected = states[0].shape[-1] != states[-1].shape[-1]
    if operator is aten.lstm.input and not is_projected and _is_cast(sequence.dtype):
        dtype = torch.get_autocast_dtype("cpu")
        states, params = ([item.to(dtype) for item in items] for items in (states, params))
        options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
        with torch.autocast("cpu", enabled=False):
            return _network(operator, sequence.to(dtype), states, params, *options)
    weights = decompositions.gather_params(params, has_biases, is_projected)
    if some(sequence.shape) and _is_plain(sequence, *states, *params):
        layer = functools.partial(_layer_by_loop, _CELLS[operator])
    else:
        layer = functools.partial(_layer_by_steps, operator)
    output, last = decompositions._rnn_helper(
        sequence,
        list(zip(*(state.unbind(0) for state in states), strict=True)),
        weights,
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
        layer,
    )
    return output, *(torch.stack(parts) for parts in zip(*last, strict=True))


def _is_plain(*tensors: Tensor) -> bool:
    """Whether all are of one type, and no `torch.func` transform or autocast is at work."""
    return (
        len({tensor.dtype for tensor in tensors}) == 1
        and not torch.is_autocast_enabled("cpu")
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def _is_cast(dtype: torch.dtype) -> bool:
    """Whether autocast casts all operands of an LSTM, which it does where oneDNN has a layer."""
    is_at_work = torch.is_autocast_enabled("cpu") and torch._C._get_mkldnn_enabled()
    return is_at_work and dtype is not torch.float64


def _layer_by_steps(
    operator: torch._ops.OpOverload,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    reverse: bool = False,
) -> tuple[Tensor, Sequence[Tensor]]:
    """One direction of one layer, unrolled: its outputs, by time, and its last states."""
    if operator is not aten.lstm.input:
        cell = RECURRENT_CELLS[operator]
        by_steps: Any = decompositions.one_layer_rnn
        output, last = by_steps(x, *states, params, has_biases, cell, reverse)
        return output, [last]
    output, lasts = decompositions.one_layer_lstm(x, states, params, has_biases, reverse)
    return output, lasts


def _layer_by_loop(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    reverse: bool = False,
) -> tuple[Tensor, Sequence[Tensor]]:
    """One direction of one layer: its outputs, by time, and its last states.

    An LSTM of half types computes in float32, as oneDNN does but for the states.
    """
    dtype = x.dtype
    if cell is LSTM:
        exact = torch.promote_types(dtype, torch.float32)
        x, states, params = (
            x.to(exact),
            [s.to(exact) for s in states],
            [p.to(exact) for p in params],
        )
    own = params[: 4 if has_biases else 2]
    bias = own[3] if has_biases else None
    projection = params[len(own)] if len(params) > len(own) else None
    # The part of the gates that does not wait for the step before, for all steps at once.
    gates = torch.nn.functional.linear(x, *own[::2])
    gates = gates.flip(0) if reverse else gates
    output, *last = _Layer.apply(cell, gates, own[1], bias, projection, *states)  # type: ignore[no-untyped-call]
    output, *last = (tensor.to(dtype) for tensor in (output, *last))
    return (output.flip(0) if reverse else output), last


class _Layer(torch.autograd.Function):
    """The steps of a layer, of which the part of the gates is given that the input makes.

    Takes the cell, these gates (time, batch, gates), weight and bias of the state, the weight of
    the projection, and the first states (batch, hidden_size). Returns the outputs, by time, and
    the last states.
    """

    @staticmethod
    def forward(
        ctx: Any,
        cell: Cell,
        gates: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        projection: Tensor | None,
        *states: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.cell, ctx.has_bias, ctx.is_projected = cell, bias is not None, projection is not None
        weights = [tensor for tensor in (weight, bias, projection) if tensor is not None]
        count = len(states)

        def step(*operands: Tensor) -> tuple[Tensor, ...]:
            before, of_input, shared = operands[:count], operands[count], operands[count + 1 :]
            of_state = torch.nn.functional.linear(before[0], *shared[: 1 + ctx.has_bias])
            after, kept = cell.step(before, of_input, of_state)
            if ctx.is_projected:
                kept = [*kept, after[0].clone()]
                after = [torch.nn.functional.linear(after[0], shared[-1]), *after[1:]]
            return *after, after[0].clone(), before[0].clone(), *kept

        results = _scan(step, [state.contiguous() for state in states], [gates], weights)
        last, kept = results[:count], results[count:]
        ctx.save_for_backward(weight, projection, *states, *kept)
        return kept[0], *last

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise CaptureError(
                CaptureFailure.NEEDS_AUTOGRAD,
                "the gradients of a recurrent network have gradients",
            )
        of_output, *of_last = grads
        count = len(of_last)
        weight, projection, *tensors = ctx.saved_tensors
        states, (output, before, *kept) = tensors[:count], tensors[count:]
        shown = kept.pop() if ctx.is_projected else output
        shared = [weight, projection] if ctx.is_projected else [weight]
        by_time = [] if of_output is None else [of_output]
        by_time += ctx.cell.operands(before, output, kept)

        def step_back(*operands: Tensor) -> tuple[Tensor, ...]:
            given, kept = operands[:count], operands[count : -len(shared)]
            weights = operands[-len(shared) :]
            total = given[0].clone()
            if of_output is not None:
                total, kept = given[0] + kept[0], kept[1:]
            of_shown = total @ weights[1] if ctx.is_projected else total
            gates, direct = ctx.cell.step_back([of_shown, *given[1:]], kept)
            of_first = gates[-1] @ weights[0]
            if direct[0] is not None:
                of_first = of_first + direct[0]
            return of_first, *direct[1:], *gates, *([total] if ctx.is_projected else [])

        carried = [
            output.new_zeros(state.shape) if grad is None else grad.contiguous()
            for grad, state in zip(of_last, states, strict=True)
        ]
        results = _scan(step_back, carried, [value.flip(0) for value in by_time], shared)
        of_first, by_step = results[:count], [value.flip(0) for value in results[count:]]
        of_projection = _of_weight(by_step.pop(), shown) if ctx.is_projected else None
        of_input, of_state = by_step[0], by_step[-1]
        of_bias = of_state.sum((0, 1)) if ctx.has_bias else None
        return None, of_input, _of_weight(of_state, before), of_bias, of_projection, *of_first


def _of_weight(grad: Tensor, operand: Tensor) -> Tensor:
    """The gradient of a weight that all steps multiply an operand with."""
    return grad.flatten(0, 1).t() @ operand.flatten(0, 1)


def _scan(
    step: Callable[..., tuple[Tensor, ...]],
    states: Sequence[Tensor],
    by_time: Sequence[Tensor],
    shared: Sequence[Tensor],
) -> Sequence[Tensor]:
    """Loop over the rows of `by_time`, below autograd."""
    graph = graph_of(step, len(states) + len(by_time) + len(shared))
    with torch._C._AutoDispatchBelowAutograd():
        results: Sequence[Tensor] = torch.ops.higher_order.scan(
            graph, [*states], [*by_time], [*shared]
        )
    return results
