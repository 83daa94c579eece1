# SPDX-License-Identifier: Apache-2.0
"""Fake tensors for the inputs of a graph: with their sizes, or with those that calls leave open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from hostjit.capturing.dynamic_dims import is_number, is_symbolic, refusal
from hostjit.capturing.open_sizes import is_dense
from hostjit.capturing.overlap import writes_clones
from hostjit.capturing.traced_graph import placeholder_values

__all__ = ["fake_inputs", "fake_like", "gradient_like"]


def fake_inputs(module: torch.fx.GraphModule, fake_mode: Any, inputs: Sequence[Any]) -> list[Any]:
    """Return fake tensors of the inputs, with the open sizes that the graph was traced with.

    In a mode without symbols, with those of the inputs themselves. An input that is a fake tensor
    or a symbolic number stands for itself.
    """
    nodes = list(module.graph.nodes)
    fakes: list[Any] = []
    for model, tensor in zip(placeholder_values(module), inputs, strict=True):
        if isinstance(tensor, FakeTensor) or is_number(tensor):
            fakes.append(tensor)
            continue
        if tensor.storage_offset() and any(map(writes_clones, nodes)):
            # Their clones would have what is in front of an input too, which no call promises.
            if any("as_strided" in str(node.target) for node in nodes):
                raise refusal("as_strided of an input that does not start where its memory starts")
            found = fake_like(model if is_symbolic(model) else tensor, fake_mode)
            fakes.append(_with_bits_of(tensor, found))
            continue
        if fake_mode.shape_env is None or not is_symbolic(model):
            fakes.append(fake_mode.from_tensor(tensor, static_shapes=True))
            continue
        # Views count from where the input starts; as_strided from where its memory does.
        if tensor.storage_offset() and any("as_strided" in str(node.target) for node in nodes):
            raise refusal("as_strided of an input that does not start where its memory starts")
        fakes.append(_with_bits_of(tensor, fake_like(model, fake_mode)))
    return fakes


def _with_bits_of(tensor: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    """Conjugate and negate a fake tensor as lazily as an input is."""
    torch._C._set_conj(fake, tensor.is_conj())
    torch._C._set_neg(fake, tensor.is_neg())
    return fake


def fake_like(model: torch.Tensor, fake_mode: Any) -> torch.Tensor:
    """Return a new fake tensor of the type, sizes and strides of another."""
    with fake_mode:
        return torch.empty_strided(
            model.shape, model.stride(), dtype=model.dtype, device=model.device
        )


def gradient_like(result: torch.Tensor, fake_mode: Any) -> torch.Tensor:
    """Return a fake tensor for the gradient of a result, which has elements of its own.

    In the result's layout, if that is dense: what arrives is copied where its layout is another.
    """
    if is_dense(result.shape, result.stride()):
        return fake_like(result, fake_mode)
    with fake_mode:
        return torch.empty(result.shape, dtype=result.dtype, device=result.device)
