# SPDX-License-Identifier: Apache-2.0
"""Dropout with a probability that is only known at the call.

PyTorch's operator takes a float, for which tracing has to know it. This one takes a number; once it
is traced, it is PyTorch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["DROPOUT", "to_pytorch"]

aten = torch.ops.aten

_library = torch.library.Library("hostjit", "FRAGMENT")
_library.define(
    "dropout(Tensor x, Scalar p) -> (Tensor, Tensor)", tags=(torch.Tag.nondeterministic_seeded,)
)
DROPOUT = torch.ops.hostjit.dropout.default


def _compute(x: Tensor, p: float) -> Any:
    return aten.native_dropout.default(x, float(p), True)


def _fake(x: Tensor, p: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.p = inputs[1]


def _gradient(ctx: Any, gradient: Tensor, _: Tensor | None) -> tuple[Tensor, None]:
    (mask,) = ctx.saved_tensors
    return gradient * (mask.to(gradient.dtype) * (1.0 / (1.0 - ctx.p))), None


torch.library.impl(_library, "dropout", "CompositeExplicitAutograd")(_compute)
torch.library.register_fake("hostjit::dropout", _fake, lib=_library)
torch.library.register_autograd("hostjit::dropout", _gradient, setup_context=_keep, lib=_library)


def to_pytorch(graph: torch.fx.Graph) -> None:
    """Make PyTorch's operator of this one, in a graph that nothing is traced of any more."""
    for node in graph.find_nodes(op="call_function", target=DROPOUT):
        node.target = aten.native_dropout.default
        node.args = (*node.args, True)
