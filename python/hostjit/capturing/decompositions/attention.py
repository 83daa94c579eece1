# SPDX-License-Identifier: Apache-2.0
"""What `nn.MultiheadAttention` computes on its fast path, in operators that can be lowered.

Eager inference takes the fast path, one operator of C++. Dynamo is told to avoid it; the other path
gives results of other strides in torch 2.11, and zeros instead of NaN where a mask leaves nothing.
So capture has Dynamo take the decision as eager does, and trace `native_attention` in place
of the operator. Traced as well, it can return None for the weights, which an operator in a graph
cannot.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import activation

from hostjit.capturing.open_sizes import known
from hostjit.replacements import replaced_items

__all__ = ["eager_attention_path", "native_attention"]

_PADDING_MASK = 1


def native_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute `torch._native_multi_head_attention` for one dense tensor as query, key and value."""
    if known(query.numel() == 0):
        return torch.empty_like(query), None
    batch, length, _ = query.shape
    packed = torch.nn.functional.linear(query, qkv_weight, qkv_bias)
    heads = packed.view(batch, length, 3, num_head, embed_dim // num_head).permute(2, 0, 3, 1, 4)
    weights = None
    if mask is None and not need_weights:
        attended = torch.nn.functional.scaled_dot_product_attention(heads[0], heads[1], heads[2])
    else:
        scale = (embed_dim // num_head) ** -0.5
        scores = torch.matmul(heads[0] * scale, heads[1].transpose(-2, -1))
        if mask is not None:
            # The operator takes every element that is not zero as "leave out".
            left_out = mask.to(torch.bool)
            if mask_type == _PADDING_MASK:
                left_out = left_out.view(batch, 1, 1, length)
            scores = scores.masked_fill(left_out, float("-inf"))
        weights = torch.softmax(scores, -1)
        attended = torch.matmul(weights, heads[2])
    attended = attended.transpose(1, 2).reshape(batch, length, embed_dim)
    output = torch.nn.functional.linear(attended, proj_weight, proj_bias)
    if not need_weights:
        return output, None
    if weights is not None and average_attn_weights:
        weights = weights.sum(1) / num_head
    return output, weights


@contextlib.contextmanager
def eager_attention_path() -> Iterator[None]:
    """Have Dynamo trace attention as eager runs it, in this thread, for the time of one capture."""
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    owner = threading.get_ident()
    operator = torch._native_multi_head_attention
    question = activation._is_make_fx_tracing
    handlers = TorchInGraphFunctionVariable._get_handlers()
    ask_dynamo: Callable[..., Any] = handlers[question]

    def answer(variable: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != owner:
            return ask_dynamo(variable, tx, *args, **kwargs)
        return VariableTracker.build(tx, False)

    def trace_operator(variable: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != owner:
            return None  # as if there were no handler
        function = VariableTracker.build(tx, native_attention)
        return tx.inline_user_function_return(function, list(args), kwargs)

    with replaced_items(handlers, {question: answer, operator: trace_operator}):
        yield
