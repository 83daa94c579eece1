# SPDX-License-Identifier: Apache-2.0
"""`nn.GRU` and `nn.RNN` for inference, recorded as one operator, and not step by step."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch._C import _functorch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves

from hostjit.capturing.decompositions.recurrent import RECURRENT_CELLS

__all__ = ["is_whole_network", "networks_whole"]

_FUNCTIONS = (torch.gru, torch.rnn_relu, torch.rnn_tanh)
_COUNT = 9  # of their arguments


def networks_whole(function: Any, args: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which a call of such a function meets its operator whole.

    In inference mode it does anyway.
    """
    is_network = len(args) == _COUNT and any(function is known for known in _FUNCTIONS)
    # Of the arguments for packed sequences, the third is a tensor.
    if is_network and isinstance(args[2], (list, tuple)) and _stays_whole(args):
        return torch._C._AutoDispatchBelowAutograd()
    return contextlib.nullcontext()


def is_whole_network(operator: Any, args: Sequence[Any]) -> bool:
    """Whether a call of an operator is recorded as it is, though it is composed of others."""
    return operator in RECURRENT_CELLS and _stays_whole(args)


def _stays_whole(args: Sequence[Any]) -> bool:
    """Whether a replay needs neither derivatives, random numbers nor another precision."""
    dropout, train = args[5:7]
    tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    needs_gradients = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    on_cpu = all(x.device.type == "cpu" for x in tensors)
    # Of `torch.func`, and of forward derivatives without it.
    is_transformed = _functorch.peek_interpreter_stack() is not None or _has_dual_level()
    others = (train and dropout) or torch.is_autocast_enabled("cpu")
    return on_cpu and not (needs_gradients or is_transformed or others)


def _has_dual_level() -> bool:
    return bool(forward_ad._current_level >= 0)
