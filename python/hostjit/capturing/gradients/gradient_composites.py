# SPDX-License-Identifier: Apache-2.0
"""Composite operators that PyTorch decomposes for inference, traced with gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._decomp import decompositions
from torch._inductor import config as inductor_config

from hostjit.capturing.decompositions.dropout import dropout_as_eager
from hostjit.capturing.decompositions.interpolation import interpolation_in_one
from hostjit.capturing.functional.eager_derivatives import eager_derivatives
from hostjit.capturing.functional.open_composites import composites_of_open_sizes
from hostjit.capturing.functional.open_powers import powers_of_open_numbers
from hostjit.capturing.functional.recurrent_dropout import dropout_between_layers
from hostjit.capturing.gradients.kept_checks import checks_kept

__all__ = ["composites_with_gradients"]


@contextlib.contextmanager
def composites_with_gradients() -> Iterator[None]:
    """Trace dropout without copies, interpolation as one operator, and LSTMs with gradients.

    Checks of results stay, and so do random numbers that nothing uses: they move the generator.
    """
    their_choice = decompositions.select_one_layer_lstm_function
    decompositions.select_one_layer_lstm_function = _unrolled
    try:
        with (
            dropout_as_eager(),
            eager_derivatives(),
            interpolation_in_one(),
            composites_of_open_sizes(),
            powers_of_open_numbers(),
            dropout_between_layers(),
            checks_kept(),
            inductor_config.patch(fallback_random=True),
        ):
            yield
    finally:
        decompositions.select_one_layer_lstm_function = their_choice


def _unrolled(
    x: torch.Tensor, hx: Sequence[torch.Tensor], params: Sequence[Sequence[torch.Tensor]]
) -> Callable[..., Any]:
    """Choose step by step, where PyTorch has a layer of oneDNN, for inference if it looks so."""
    is_projected = hx[0].shape[-1] != hx[1].shape[-1]
    is_onednns = torch._C._get_mkldnn_enabled() and not is_projected
    is_cast = torch.is_autocast_enabled("cpu") and x.dtype is not torch.float64
    return _cast_layer if is_onednns and is_cast else _layer


def _cast_layer(
    x: torch.Tensor,
    hidden: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    *arguments: Any,
    **options: Any,
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """A layer of an LSTM under autocast, which casts all that oneDNN's layer is given."""
    dtype = torch.get_autocast_dtype("cpu")
    hidden, params = ([item.to(dtype) for item in items] for items in (hidden, params))
    with torch.autocast("cpu", enabled=False):
        return _layer(x.to(dtype), hidden, params, *arguments, **options)


def _layer(
    x: torch.Tensor, hidden: Sequence[torch.Tensor], *arguments: Any, **options: Any
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """A layer of an LSTM; that of torch 2.11 returns its states with a dimension too many."""
    result, states = decompositions.one_layer_lstm(x, hidden, *arguments, **options)
    pairs = zip(states, hidden, strict=True)
    return result, tuple(s.squeeze(0) if s.dim() > h.dim() else s for s, h in pairs)
