# SPDX-License-Identifier: Apache-2.0
"""Samples of operations that take elements by index, search, and multiply matrices."""

from __future__ import annotations

from typing import Any

import torch
from sample import add, floats
from torch.nn import functional

__all__: list[str] = []

add(
    "index_select",
    lambda: [floats(5, 3), torch.tensor([4, 0]).int(), torch.tensor(2)],
    lambda fd, x, i, j: (fd.ops.index_select(x, i, 0), fd.ops.index_select(x, j, dim=1)),
    lambda x, i, j: [x[i.long()], x[:, 2:3]],
)
add(
    "select",
    lambda: [floats(5, 3), 2],
    lambda fd, x, i: (fd.ops.select(x, i, 0), fd.ops.select(x, 1, -1)),
    lambda x, i: [x[i], x[:, 1]],
)
add(
    "gather",
    lambda: [floats(4, 3), torch.tensor([[0, 2], [1, 0]]).int()],
    lambda fd, x, i: (fd.ops.gather(x, i, 0), fd.ops.gather(x, i, -1)),
    lambda x, i: [x.gather(0, i.long()), x.gather(1, i.long())],
)
add(
    "take_along_axis",
    lambda: [floats(4, 3), torch.tensor([[0], [2], [1], [0]]), torch.tensor([[3, 0, 1]])],
    lambda fd, x, i, j: (fd.ops.take_along_axis(x, i, 1), fd.ops.take_along_axis(x, j, 0)),
    lambda x, i, j: [torch.take_along_dim(x, i, 1), torch.take_along_dim(x, j, 0)],
)
add(
    "scatter",
    lambda: [floats(4, 3), torch.tensor([[0, 2, 1]]), floats(1, 3), 2.5],
    lambda fd, x, i, s, v: (fd.ops.scatter(x, i, s, 0), fd.ops.scatter(x, i, v, dim=0)),
    lambda x, i, s, v: [x.scatter(0, i, s), x.scatter(0, i, v)],
)
add(
    "embedding_fwd",
    lambda: [torch.tensor([[1, 4], [0, 2]]), floats(5, 3)],
    lambda fd, i, w: (
        fd.ops.embedding_fwd(i, w, padding_idx=1),
        fd.ops.embedding_fwd(i, w, max_norm=1.0),
        fd.ops.embedding_fwd(i, w, None, 1.5, 1.0),
    ),
    lambda i, w: [
        functional.embedding(i, w),
        functional.embedding(i, w.clone(), max_norm=1.0),
        functional.embedding(i, w.clone(), max_norm=1.5, norm_type=1.0),
    ],
)
add(
    "topk",
    lambda: [floats(3, 6), 2],
    lambda fd, x, k: [*fd.ops.topk(x, k, 1, True, True), *fd.ops.topk(x, 3, 0, False, True)],
    lambda x, k: [*x.topk(k, 1), *x.topk(3, 0, False)],
)
add(
    "argsort",
    lambda: [floats(3, 6)],
    lambda fd, x: (fd.ops.argsort(x, 1), fd.ops.argsort(x, -1, descending=True, stable=True)),
    lambda x: [x.argsort(1), x.argsort(1, descending=True)],
)

for _left, _right in (((3, 4), (4, 5)), ((4,), (4, 5)), ((4,), (4,)), ((2, 1, 3, 4), (6, 4, 5))):
    add(
        "matmul",
        lambda left=_left, right=_right: [floats(*left), floats(*right)],
        lambda fd, a, b: fd.ops.matmul(a, b),
        torch.matmul,
    )
for _dtype in (torch.float32, torch.bfloat16):
    add(
        "linear",
        lambda dtype=_dtype: [floats(2, 3, 4, dtype=dtype), floats(5, 4, dtype=dtype)],
        lambda fd, x, w: fd.ops.linear(x, w),
        functional.linear,
    )
add(
    "linear",
    lambda: [floats(3, 4), floats(5, 4), floats(5)],
    lambda fd, x, w, b: fd.ops.linear(x, w, b),
    functional.linear,
)
add(
    "grouped_mm",
    lambda: [
        floats(16, 16, dtype=torch.bfloat16),
        floats(2, 16, 8, dtype=torch.bfloat16),
        torch.tensor([6, 16], dtype=torch.int32),
    ],
    lambda fd, a, b, ends: fd.ops.grouped_mm(a, b, ends),
    lambda a, b, ends: torch.cat([a[:6] @ b[0], a[6:] @ b[1]]),
)


def attention(query: Any, key: Any, value: Any) -> list[torch.Tensor]:
    scores = query @ key.mT / 4.0
    mask = torch.ones(scores.shape[-2:]).triu(1).bool()
    scores = scores.masked_fill(mask, -torch.inf)
    return [scores.softmax(-1) @ value, scores.logsumexp(-1)]


add(
    "sdpfa_fwd",
    lambda: [floats(2, 3, 8, 16), floats(2, 3, 8, 16), floats(2, 3, 8, 16)],
    lambda fd, q, k, v: fd.ops.sdpfa_fwd(q, k, v, is_causal=True)[:2],
    attention,
)


def attention_gradients(g: Any, *inputs: Any) -> list[torch.Tensor]:
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in inputs]
        return list(torch.autograd.grad(attention(*leaves)[0], leaves, g))


def define_attention_gradients(fd: Any, g: Any, q: Any, k: Any, v: Any) -> Any:
    out, sums, seed, offset = fd.ops.sdpfa_fwd(q, k, v, None, None, 0.0, True, 0.25)
    return fd.ops.sdpfa_bwd(g, q, k, v, out, sums, 0.0, True, seed, offset, 0.25)


add(
    "sdpfa_bwd",
    lambda: [floats(2, 3, 8, 16) for _ in range(4)],
    define_attention_gradients,
    attention_gradients,
)
