# SPDX-License-Identifier: Apache-2.0
"""`nn.LSTM`, `nn.GRU` and `nn.RNN` for inference, recorded as one operator, not by steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._C import _functorch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

from hostjit.capturing.decompositions.recurrent import RECURRENT_NETWORKS

__all__ = ["is_cast_network", "is_whole_network", "recorded_network"]

_FUNCTIONS = (torch.lstm, torch.gru, torch.rnn_relu, torch.rnn_tanh)
_COUNT = 9  # of their arguments


def recorded_network(function: Any, args: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which a call of a function, of a network or another, is recorded.

    Where a network stays whole, its operator is met there. In inference mode it is anyway.
    """
    is_network = len(args) == _COUNT and any(function is known for known in _FUNCTIONS)
    # Packed sequences have a tensor of sizes in front of the states, which are a tensor but for
    # those of an LSTM.
    is_packed = is_network and isinstance(args[1 if function is torch.lstm else 2], torch.Tensor)
    if is_network and not is_packed and _stays_whole(args):
        return torch._C._AutoDispatchBelowAutograd()
    if function is torch.lstm and _need_gradients(args) and not is_cast_network(function, args):
        # What oneDNN's layer leaves for its backward pass is of its own kind.
        return _without_onednn()
    return contextlib.nullcontext()


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    # `torch.backends.mkldnn.flags` would set, and warn of, what GPUs of Intel may round to.
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def is_whole_network(operator: Any, args: Sequence[Any]) -> bool:
    """Whether a call of an operator is recorded as it is, though it is composed of others."""
    return operator in RECURRENT_NETWORKS and _stays_whole(args)


def is_cast_network(function: Any, args: Sequence[Any]) -> bool:
    """Whether oneDNN computes a network with gradients in the type of autocast, as a whole."""
    is_cast = function is torch.lstm and torch.is_autocast_enabled("cpu")
    return is_cast and _need_gradients(args)


def _stays_whole(args: Sequence[Any]) -> bool:
    """Whether a replay needs neither derivatives, random numbers nor another precision."""
    dropout, train = args[5:7]
    tensors = _tensors(args)
    on_cpu = all(x.device.type == "cpu" for x in tensors)
    # Of `torch.func`, and of forward derivatives without it.
    is_transformed = _functorch.peek_interpreter_stack() is not None or _has_dual_level()
    others = (train and dropout) or torch.is_autocast_enabled("cpu")
    return on_cpu and not (_need_gradients(args) or is_transformed or others)


def _need_gradients(args: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in _tensors(args))


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]


def _has_dual_level() -> bool:
    return bool(forward_ad._current_level >= 0)
