# SPDX-License-Identifier: Apache-2.0
"""Dropout between the layers of recurrent networks, which PyTorch's decompositions leave out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._decomp import decompositions

from hostjit.capturing.errors import CaptureError, CaptureFailure

__all__ = ["dropout_between_layers"]

Tensor = torch.Tensor


@contextlib.contextmanager
def dropout_between_layers() -> Iterator[None]:
    """Have LSTMs, GRUs and RNNs that are traced drop out what eager drops out, in its order."""
    theirs: Callable[..., Any] = decompositions._rnn_helper

    def layers(
        x: Tensor,
        hidden: Sequence[Any],
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        layer: Callable[..., Any],
    ) -> tuple[Tensor, list[Any]]:
        """Run PyTorch's function on a layer at a time: it takes every one for the last."""
        if x.is_cuda:
            raise CaptureError(
                CaptureFailure.NEEDS_AUTOGRAD,
                "a recurrent network on a CUDA device has gradients, which cuDNN computes",
            )
        directions = 2 if bidirectional else 1
        x = x.transpose(0, 1) if batch_first else x
        last: list[Any] = []
        for first in range(0, num_layers * directions, directions):
            if first and train and dropout:
                x = torch.dropout(x, dropout, train)
            own = slice(first, first + directions)
            x, states = theirs(
                x, hidden[own], params[own], has_biases, 1, 0.0, train, bidirectional, False, layer
            )
            last += states
        return (x.transpose(0, 1) if batch_first else x), last

    decompositions._rnn_helper = layers
    try:
        yield
    finally:
        decompositions._rnn_helper = theirs
