# SPDX-License-Identifier: Apache-2.0
"""Functions with example arguments on a device, one of each kind that a program may hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops import map as torch_map
from torch._higher_order_ops import scan, while_loop
from torch.nn import functional

__all__ = ["FUNCTIONS", "IN_PARTS", "RANDOM_FUNCTIONS", "Sample"]

# Makes a function and the arguments of a call.
Sample = Callable[[str], tuple[Callable[..., Any], tuple[Any, ...]]]


def of(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = None) -> Sample:
    return lambda device: (
        function,
        tuple(torch.randn(shape, device=device, dtype=dtype) for shape in shapes),
    )


def pointwise(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.relu(a + b) * c - a.sigmoid()


def many_results(x: Tensor) -> dict[str, Tensor]:
    return {"double": x * 2, "mask": x > 0, "long": x.long(), "input": x, "view": x[1:]}


def softmaxes(x: Tensor) -> tuple[Tensor, ...]:
    masked = x.masked_fill(x > 1, float("-inf"))
    return torch.softmax(masked, -1), torch.log_softmax(x, 0), x.logsumexp(1)


def norms(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    width = x.shape[-1:]
    return (
        functional.layer_norm(x, width, weight, bias),
        functional.rms_norm(x, width, weight),
        functional.group_norm(x, 4),
        functional.batch_norm(x, None, None, weight, bias, training=True),
    )


def reductions(x: Tensor) -> tuple[Any, ...]:
    return (
        *(x.sum(), x.mean(0), x.amax((0, 1)), x.prod(-1), x.std(1), x.argmax(1), x.cumsum(0)),
        *(
            *torch.var_mean(x, -1),
            x.max(1),
            (x > 3).any(),
            (x > -9).all(0),
            x.norm(dim=1),
            x.sort(0),
        ),
    )


def attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    causal = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril(1)
    masked = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    scores = torch.softmax(query @ key.transpose(-2, -1) / 8, dim=-1) @ value
    return causal, masked, scores


def products(a: Tensor, b: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    return a @ b, torch.addmm(bias, a, b), functional.linear(a, b.t(), bias).tanh(), a[0] @ b


def convolutions(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    y = functional.conv2d(x, weight, bias, padding=1)
    return (
        y.relu(),
        functional.conv2d(x, weight, stride=2),
        functional.conv_transpose2d(y, weight, stride=2),
        functional.max_pool2d(y, 2),
        functional.adaptive_avg_pool2d(y, 1),
        functional.interpolate(y, scale_factor=2, mode="nearest"),
    )


def joins(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (
        *(torch.cat((a, b * 2), 1), torch.stack((a, b)), torch.where(a > b, a, b)),
        *(torch.cat((a, a.new_empty(a.shape[0], 0)), 1), functional.pad(a, (1, 2), value=3.0)),
    )


def views(x: Tensor) -> tuple[Tensor, ...]:
    return (
        *(x.t(), x[::2, 1:] + 1, x.unsqueeze(1).expand(-1, 3, -1) * 2, x.reshape(-1)[3:].clone()),
        *(x.permute(1, 0).contiguous(), x.flip(0), x.roll(1, 1), x.unfold(1, 2, 2).sum(-1)),
    )


def in_place(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1).mul_(y)
    x[0] = 7
    y[:, :2].zero_()
    return x.clamp_(-1, 1).relu_() + y


def changed_view(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[1]
    row.sub_(5)
    return row, x.sum()


def lookups(table: Tensor) -> tuple[Tensor, ...]:
    index = torch.tensor([[3, 0, 1], [1, 1, 2]], device=table.device)
    return (
        *(functional.embedding(index, table), table[index[0]], table.gather(1, index[:, :2])),
        *(table.index_select(1, index[1]), table.take_along_dim(table.argsort(1), 1)),
        torch.zeros_like(table).index_add(0, index[0], table[:3]),
        torch.zeros_like(table).scatter(1, index, 2.0),
        functional.one_hot(index, 5),
        functional.cross_entropy(table[:2], index[:, 0]),
    )


def made_inside(x: Tensor) -> tuple[Tensor, ...]:
    device = x.device
    steps = torch.arange(x.shape[0], device=device)
    return (
        *(steps * 2, torch.zeros(2, 3, device=device), torch.full_like(x, 2.5), torch.eye(3).to(x)),
        *(x * torch.tensor([1.0, 2.0, 3.0, 4.0], device=device), torch.linspace(0, 1, 5).to(x)),
    )


def special_values(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.cat((x, x.new_tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-40])))
    return y.exp(), y.log(), y.sqrt(), y.relu(), y.maximum(y.neg()), 1 / y, y.isnan(), y.sign()


def integers(x: Tensor) -> tuple[Tensor, ...]:
    n = (x * 100).int()
    return (
        n // 7,
        n % 7,
        n << 2,
        n & 12,
        ~n,
        n.abs().long() ** 2,
        n.bool(),
        n.sum(),
        n / 3,
        n.byte(),
    )


def halves(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (
        *((x + y[0]).tanh(), x.softmax(-1), functional.gelu(x @ y.t()), x.float().sum(-1)),
        functional.layer_norm(x, x.shape[-1:]),
    )


def under_autocast(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        y = functional.linear(x, weight)
        return y, y.softmax(-1), functional.layer_norm(y, y.shape[-1:]).sum()


def with_scalars_on_the_cpu(x: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, ...]:
    return x * scale, x + shift, torch.where(x > 0, x, scale), scale / shift


def across_devices(x: Tensor) -> tuple[Tensor, ...]:
    there = (x + 1).cpu()
    return there, there.to(x.device) * 2, there.sum()


def complex_numbers(x: Tensor) -> tuple[Tensor, ...]:
    z = torch.complex(x, x.flip(0))
    return z * z, z.abs(), torch.view_as_real(z), torch.fft.fft(x).real


def layouts(x: Tensor) -> tuple[Tensor, ...]:
    last = x.contiguous(memory_format=torch.channels_last)
    return (
        *(last.roll(1, 1), last.roll((1, 2), (0, 3)), torch.channel_shuffle(last, 2)),
        *(functional.interpolate(last, scale_factor=2, mode=mode) for mode in _MODES),
        *(torch.pixel_shuffle(last[:, :4], 2), torch.pixel_unshuffle(last[..., :4], 2)),
        *(last.relu(), last.softmax(1), functional.avg_pool2d(last, 2), last.flip(1)),
    )


_MODES = ("nearest", "bilinear", "bicubic")


def distinct(x: Tensor) -> tuple[Tensor, ...]:
    n = x.round()
    return (
        *(n.unique(dim=1), n.unique(dim=0), n.unique_consecutive(dim=-1), n.unique()),
        *(n.unique(return_inverse=True)[1], n.nonzero(), n[n > 0]),
    )


def chosen(x: Tensor) -> tuple[Tensor, ...]:
    larger = torch.cond(x.sum() > 0, lambda x: x.tanh(), lambda x: x - 1, (x,))
    nested = torch.cond(
        x[0, 0] > 9,
        lambda x: x * 2,
        lambda x: torch.cond(x[0, 0] > -9, lambda x: x * 3, lambda x: x * 4, (x,)),
        (x,),
    )
    return larger, nested


def repeated(x: Tensor) -> tuple[Tensor, ...]:
    count, y = while_loop(
        lambda count, y: (count < 5) & (y.abs().max() < 100),
        lambda count, y: (count + 1, y * 2 + 1),
        (torch.zeros((), dtype=torch.int64, device=x.device), x),
    )
    state, steps = scan(lambda h, row: (h * 0.5 + row, h.sin()), x[0], x)
    return count, y, state, steps, torch_map(lambda row, y: row.tanh() + y, x, x[0] + 1)


def at_places(x: Tensor) -> tuple[Tensor, ...]:
    place = x.argmax()
    row = x.sum(1).argmax()
    taken = x[row].clone()
    buffer = torch.zeros_like(x)
    buffer[row] = taken
    buffer.index_copy_(0, row.reshape(1), taken[None] * 2)
    return x.flatten()[place], taken, buffer, x[row:].sum(), x.masked_fill(x > 0, 2.0)


def written(x: Tensor, y: Tensor) -> Tensor:
    x[:, 1:] = y[:, 1:]
    x[1, 2:] += 1
    x[[0, 2]] = y[[2, 0]]
    x.index_add_(0, torch.tensor([0, 1, 0], device=x.device), y[:3])
    x.scatter_(1, torch.tensor([[0], [2]], device=x.device), 5.0)
    x[x > 4] = -1
    return x * 2


def scalars(device: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    x = torch.randn(4, 5, device=device)
    return with_scalars_on_the_cpu, (x, torch.tensor(2.5), torch.tensor(1.5))


def strided(device: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    x = torch.randn(12, 10, device=device)
    return pointwise, (x.t()[::2], x[:5, ::1].t()[:, :1].expand(10, 12)[::2], x[:, 1:6].t())


def misaligned(device: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    x = torch.randn(1027, device=device)
    return pointwise, (x[1:1025], x[2:1026], x[3:1027])


FUNCTIONS: dict[str, Sample] = {
    "pointwise": of(pointwise, (4, 8), (4, 8), (8,)),
    "pointwise_large": of(pointwise, (1031, 513), (1031, 513), (513,)),
    "pointwise_no_dims": of(pointwise, (), (), ()),
    "pointwise_empty": of(pointwise, (0, 4), (0, 4), (4,)),
    "pointwise_strided": strided,
    "pointwise_misaligned": misaligned,
    "many_results": of(many_results, (5, 3)),
    "softmaxes": of(softmaxes, (6, 33)),
    "softmaxes_long": of(softmaxes, (3, 5000)),
    "norms": of(norms, (6, 8), (8,), (8,)),
    "norms_long": of(norms, (3, 4096), (4096,), (4096,)),
    "reductions": of(reductions, (7, 9)),
    "reductions_large": of(reductions, (513, 300)),
    "attention": of(attention, (2, 3, 16, 64), (2, 3, 16, 64), (2, 3, 16, 64)),
    "products": of(products, (5, 7), (7, 3), (3,)),
    "products_empty": of(products, (5, 0), (0, 3), (3,)),
    "convolutions": of(convolutions, (2, 4, 9, 9), (4, 4, 3, 3), (4,)),
    "joins": of(joins, (4, 5), (4, 5)),
    "views": of(views, (6, 8)),
    "in_place": of(in_place, (4, 5), (4, 5)),
    "changed_view": of(changed_view, (4, 5)),
    "lookups": of(lookups, (4, 5)),
    "made_inside": of(made_inside, (3, 4)),
    "special_values": of(special_values, (7,)),
    "integers": of(integers, (50,)),
    "float64": of(pointwise, (4, 8), (4, 8), (8,), dtype=torch.float64),
    "float16": of(halves, (4, 16), (3, 16), dtype=torch.float16),
    "bfloat16": of(halves, (4, 16), (3, 16), dtype=torch.bfloat16),
    "autocast": of(under_autocast, (4, 16), (8, 16)),
    "complex_numbers": of(complex_numbers, (8,)),
    "layouts": of(layouts, (2, 6, 4, 5)),
    "distinct": of(distinct, (5, 3, 4)),
    "chosen": of(chosen, (4, 5)),
    "repeated": of(repeated, (4, 5)),
    "at_places": of(at_places, (4, 5)),
    "written": of(written, (4, 5), (4, 5)),
    "scalars_on_the_cpu": scalars,
    "across_devices": of(across_devices, (4, 5)),
}

# Dynamo stops in them: at sizes that depend on data, and at places that a CUDA tensor tells.
IN_PARTS = frozenset({"distinct", "at_places"})


def dropout(x: Tensor) -> Tensor:
    return functional.dropout(x, 0.4) + functional.dropout(x, 0.2)


def drawn(x: Tensor) -> tuple[Tensor, ...]:
    return (
        *(torch.rand_like(x), torch.randn(5, device=x.device), torch.bernoulli(x.sigmoid())),
        *(torch.randint(9, (4,), device=x.device), torch.randperm(9, device=x.device)),
        torch.multinomial(x.softmax(-1), 2),
    )


def drawn_in_place(x: Tensor) -> Tensor:
    return x.normal_() + x.clone().uniform_() + x.exponential_()


RANDOM_FUNCTIONS: dict[str, Sample] = {
    "dropout": of(dropout, (64, 33)),
    "drawn": of(drawn, (6, 7)),
    "drawn_in_place": of(drawn_in_place, (6, 7)),
}
