# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks on CUDA devices as eager's one operator each, which cuDNN computes."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from hostjit.capturing.functional.fake_results import fake_results_by
from hostjit.capturing.operand_devices import on_cuda

__all__ = ["KEPT_ON_CUDA", "network_results", "recurrent_networks_known"]

aten = torch.ops.aten

# Composite operators that stay one node where their operands are on a CUDA device.
KEPT_ON_CUDA: tuple[torch._ops.OpOverload, ...] = tuple(
    overload
    for packet in (aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu)
    for overload in (packet.input, packet.data)
)


def recurrent_networks_known() -> contextlib.AbstractContextManager[None]:
    """Have fake tensors know the results of these operators without taking them apart."""
    return fake_results_by(dict.fromkeys(KEPT_ON_CUDA, _results))


def network_results(func: torch._ops.OpOverload, x: torch.Tensor, *args: Any) -> Any:
    """Return new tensors for the output and the last states.

    Of packed sequences the output has no batch.
    """
    is_packed = func._schema.overload_name == "data"
    hidden = args[1] if is_packed else args[0]
    states = list(hidden) if isinstance(hidden, list | tuple) else [hidden]
    bidirectional, batch_first = args[-1 if is_packed else -2], not is_packed and args[-1]
    features = states[0].shape[-1] * (2 if bidirectional else 1)
    if batch_first:
        batch, time, _ = x.shape
        output = x.new_empty(time, batch, features).transpose(0, 1)
    else:
        output = x.new_empty(*x.shape[:-1], features)
    return output, *(state.new_empty(state.shape) for state in states)


def _results(mode: Any, func: torch._ops.OpOverload, x: torch.Tensor, *args: Any) -> Any:
    if not on_cuda(x):
        return NotImplemented
    with mode:
        return network_results(func, x, *args)
