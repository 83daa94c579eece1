# SPDX-License-Identifier: Apache-2.0
"""Samples of reductions, shapes and what is made of nothing."""

from __future__ import annotations

from typing import Any

import torch
from sample import add, bools, floats, ints, special, unit
from torch.nn import functional

from hostjit import DataType

__all__: list[str] = []

for _name, _function in (("sum", torch.sum), ("max", torch.amax), ("min", torch.amin)):
    add(
        _name,
        lambda: [floats(3, 4, 5)],
        lambda fd, x, name=_name: [
            getattr(fd.ops, name)(x),
            getattr(fd.ops, name)(x, 1),
            getattr(fd.ops, name)(x, [0, -1]),
            getattr(fd.ops, name)(x, dims=[2], keepdim=True),
            getattr(fd.ops, name)(x, dim=0),
        ],
        lambda x, f=_function: [
            f(x, (0, 1, 2)),
            f(x, 1),
            f(x, (0, 2)),
            f(x, 2, keepdim=True),
            f(x, 0),
        ],
    )
for _name, _function in (("sum", torch.sum), ("prod", torch.prod)):
    add(
        _name,
        lambda: [bools(3, 4), ints(4).int(), unit(3, 4).half(), torch.tensor(2.0)],
        lambda fd, b, n, h, z, name=_name: [
            getattr(fd.ops, name)(b, [0]),
            getattr(fd.ops, name)(n, DataType.Double),
            getattr(fd.ops, name)(n, dtype=DataType.Int32),
            getattr(fd.ops, name)(h, [1], False, DataType.Float),
            getattr(fd.ops, name)(h, 0),
            getattr(fd.ops, name)(z),
        ],
        lambda b, n, h, z, f=_function: [
            f(b, 0),
            f(n.double()),
            f(n, dtype=torch.int32),
            f(h.float(), 1),
            f(h, 0),
            z,
        ],
    )
add(
    "prod",
    lambda: [unit(3, 4, 5)],
    lambda fd, x: (fd.ops.prod(x, [0, 2]), fd.ops.prod(x, [0, 1], keepdim=True), fd.ops.prod(x)),
    lambda x: [x.prod(2).prod(0), x.prod(1, True).prod(0, True), x.prod()],
)
add(
    "max",
    lambda: [ints(3, 4), special(), bools(3)],
    lambda fd, n, x, b: (fd.ops.max(n, [1]), fd.ops.max(x), fd.ops.max(b)),
    lambda n, x, b: [n.amax(1), x.amax(), b.amax()],
)
add(
    "var",
    lambda: [floats(3, 4), floats(3, 4).half(), ints(3, 4)],
    lambda fd, x, h, n: (fd.ops.var(x, [1]), fd.ops.var(h, [0], 0, True), fd.ops.var(n, [1])),
    lambda x, h, n: [x.var(1), h.float().var(0, correction=0, keepdim=True), n.float().var(1)],
)
add(
    "var_mean",
    lambda: [floats(3, 4), torch.complex(floats(3), floats(3))],
    lambda fd, x, c: [*fd.ops.var_mean(x, [0, 1], 0, True), *fd.ops.var_mean(c, [0])],
    lambda x, c: [
        *torch.var_mean(x, (0, 1), correction=0, keepdim=True),
        *torch.var_mean(c, 0),
    ],
)
add(
    "welford",
    lambda: [floats(3, 4, 2)],
    lambda fd, x: fd.ops.welford(x, [0, 2]),
    lambda x: [x.mean((0, 2)), x.var((0, 2), correction=0) * 6, torch.full((4,), 6)],
)
_SCANS = {
    "cumsum": lambda x, dim: x.cumsum(dim, dtype=x.dtype),
    "cumprod": lambda x, dim: x.cumprod(dim, dtype=x.dtype),
    "cummin": lambda x, dim: x.cummin(dim).values,
    "cummax": lambda x, dim: x.cummax(dim).values,
}
for _name, _scan in _SCANS.items():
    add(
        _name,
        lambda: [unit(3, 4), ints(5).int()],
        lambda fd, x, n, name=_name: (
            getattr(fd.ops, name)(x, -1),
            getattr(fd.ops, name)(n, 0),
        ),
        lambda x, n, scan=_scan: [scan(x, 1), scan(n, 0)],
    )

add(
    "size",
    lambda: [floats(3, 4)],
    lambda fd, x: fd.ops.mul(x, fd.ops.add(fd.ops.size(x, 0), x.size(-1))),
    lambda x: x * 7,
)
add(
    "shape",
    lambda: [floats(3, 4), floats(12)],
    lambda fd, x, y: fd.ops.reshape(y, fd.ops.shape(x)),
    lambda x, y: y.reshape(3, 4),
)
add(
    "broadcast",
    lambda: [floats(3), floats(2, 3, 4)],
    lambda fd, x, y: (
        fd.ops.add(fd.ops.broadcast(x, [True, False, True]), y),
        fd.ops.broadcast(x, [False, True]),
    ),
    lambda x, y: [x[:, None] + y, x[:, None]],
)
add(
    "broadcast_in_dim",
    lambda: [floats(3), floats(3, 1), 4],
    lambda fd, x, y, n: (
        fd.ops.broadcast_in_dim(x, [2, 3, 4], [1]),
        fd.ops.broadcast_in_dim(y, [2, x.size(0), n], [1, 2]),
    ),
    lambda x, y, n: [x[None, :, None].expand(2, 3, 4), y.expand(2, 3, 4)],
)
add(
    "expand",
    lambda: [floats(3, 1)],
    lambda fd, x: (fd.ops.expand(x, [-1, 4]), fd.ops.expand(x, (2, 3, 1))),
    lambda x: [x.expand(3, 4), x.expand(2, 3, 1)],
)
add(
    "reshape",
    lambda: [floats(4, 6), 2],
    lambda fd, x, n: (
        fd.ops.reshape(x, [2, -1, 3]),
        fd.ops.reshape(x, [fd.ops.div(x.size(0), n), 12]),
        fd.ops.reshape(fd.ops.permute(x, [1, 0]), [24]),
    ),
    lambda x, n: [x.reshape(2, 4, 3), x.reshape(2, 12), x.t().reshape(24)],
)
add(
    "permute",
    lambda: [floats(2, 3, 4)],
    lambda fd, x: fd.ops.permute(x, [2, 0, -2]),
    lambda x: x.permute(2, 0, 1),
)
add(
    "squeeze",
    lambda: [floats(2, 1, 3, 1)],
    lambda fd, x: (fd.ops.squeeze(x, [1, -1]), fd.ops.squeeze(fd.ops.sum(x, [2], True), [2])),
    lambda x: [x.squeeze(3).squeeze(1), x.sum(2)],
)
add(
    "slice",
    lambda: [floats(5, 6), 4],
    lambda fd, x, n: (
        fd.ops.slice(x, [1, 0], [3, 6]),
        fd.ops.slice(x, (0, 2), (n, 100), (1, 1)),
        fd.ops.slice(x, [0, 0], [5, 6]),
    ),
    lambda x, n: [x[1:3], x[:n, 2:], x],
)
add(
    "cat",
    lambda: [floats(2, 3), floats(4, 3)],
    lambda fd, x, y: (fd.ops.cat([x, y]), fd.ops.cat([x, x], dim=-1)),
    lambda x, y: [torch.cat([x, y]), torch.cat([x, x], 1)],
)
add(
    "pad",
    lambda: [floats(2, 3), ints(4)],
    lambda fd, x, n: (
        fd.ops.pad(x, [1, 2]),
        fd.ops.pad(x, [0, -1, 1, 0], 2.5),
        fd.ops.pad(n, [1, 1], 7),
    ),
    lambda x, n: [
        functional.pad(x, (1, 2)),
        functional.pad(x, (0, -1, 1, 0), value=2.5),
        functional.pad(n, (1, 1), value=7),
    ],
)
add(
    "stride_order",
    lambda: [floats(2, 3, 4)],
    lambda fd, x: (fd.ops.stride_order(x, [0, 2, 1]), fd.ops.stride_order(x, [])),
    lambda x: [x.permute(1, 2, 0).clone(memory_format=torch.contiguous_format).permute(2, 0, 1), x],
)
add(
    "triu",
    lambda: [floats(2, 4, 4)],
    lambda fd, x: (fd.ops.triu(x), fd.ops.triu(x, -1)),
    lambda x: [x.triu(), x.triu(-1)],
)

add(
    "iota",
    lambda: [floats(4), 3, 0.25],
    lambda fd, x, n, step: (
        fd.ops.iota(5),
        fd.ops.iota(x.size(0), 2, n),
        fd.ops.iota(4, 1.5, step, DataType.Float),
        fd.ops.iota(3, dtype=DataType.Int32),
    ),
    lambda x, n, step: [
        torch.arange(5),
        2 + n * torch.arange(4),
        1.5 + step * torch.arange(4),
        torch.arange(3, dtype=torch.int32),
    ],
)
add(
    "full",
    lambda: [floats(4), 2.5],
    lambda fd, x, v: (
        fd.ops.full([2, 3], v, DataType.Float),
        fd.ops.full([x.size(0)], fd.ops.exp(v), DataType.Double),
        fd.ops.full((2,), v, DataType.Int),
        fd.ops.full([], True, DataType.Bool),
    ),
    lambda x, v: [
        torch.full((2, 3), v),
        torch.full((4,), v, dtype=torch.float64).exp(),
        torch.full((2,), 2),
        torch.tensor(True),
    ],
)


def seeded(make: Any) -> Any:
    def expected(*inputs: Any) -> Any:
        torch.manual_seed(1)
        return make(*inputs)

    return expected


add(
    "uniform",
    lambda: [floats(4), 2.0],
    lambda fd, x, most: fd.ops.uniform(-1.0, most, [x.size(0), 5], dtype=DataType.Double),
    seeded(lambda x, most: torch.empty(4, 5, dtype=torch.float64).uniform_(-1.0, most)),
)
add(
    "normal",
    list,
    lambda fd: fd.ops.normal(1.0, 2.0, (4, 5)),
    seeded(lambda: torch.empty(4, 5).normal_(1.0, 2.0)),
)
add("rand_like", lambda: [floats(4, 5)], lambda fd, x: fd.ops.rand_like(x), seeded(torch.rand_like))
add(
    "randn_like",
    lambda: [floats(4, 5).half()],
    lambda fd, x: fd.ops.randn_like(x),
    seeded(torch.randn_like),
)
