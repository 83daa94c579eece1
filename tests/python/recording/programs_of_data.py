# SPDX-License-Identifier: Apache-2.0
"""Programs whose way depends on data: branches, sizes, errors, containers, numbers."""

from __future__ import annotations

import contextlib
import enum

import torch
from program_list import Programs, Step, Wrap

__all__ = ["PROGRAMS"]

PROGRAMS = Programs()
program = PROGRAMS.register
randn = torch.randn


@program
def nested(wrap: Wrap) -> Step:

    def g(d):
        return {k: [v[0] + 1, (v[1] * 2,)] for k, v in d.items()}

    f = wrap(g)
    return lambda i: f({"a": [randn(2), randn(3)], "b": [randn(1), randn(2)]})


@program
def inplace_slices(wrap: Wrap) -> Step:

    def g(x, y):
        x[::2] = y[1::2]
        x[..., 1] += 1
        x.t()[0].zero_()
        return x.sum()

    f = wrap(g)

    def call(i):
        x, y = (randn(4, 4), randn(4, 4))
        return (f(x, y), x)

    return call


@program
def exceptions(wrap: Wrap) -> Step:

    def g(x):
        try:
            if x.sum() < 0:
                raise ValueError("neg")
            return x + 1
        except ValueError:
            return x - 1

    f = wrap(g)
    return lambda i: f(torch.full((2,), float(i % 3 - 1)))


@program
def early_exit_loop(wrap: Wrap) -> Step:

    def g(x):
        n = 0
        while x.norm() > 1 and n < 10:
            x = x * 0.5
            n += 1
        return (x, n)

    f = wrap(g)
    return lambda i: f(torch.full((2,), float(2 ** (i % 4))))


@program
def epsilon_greedy_torch(wrap: Wrap) -> Step:

    def g(x):
        if torch.rand(()) < 0.5:
            return torch.zeros(2)
        return x * 2

    f = wrap(g)
    return lambda i: f(randn(2))


@program
def enum_arg(wrap: Wrap) -> Step:

    class E(enum.Enum):
        A = 1
        B = 2

    f = wrap(lambda x, e: x * 2 if e is E.A else x + 1)
    return lambda i: f(randn(2), E.A if i % 2 else E.B)


@program
def mask_assign(wrap: Wrap) -> Step:

    def g(x):
        x = x.clone()
        x[x < 0] = 0
        x[x > 1] *= 0.5
        return x

    f = wrap(g)
    return lambda i: f(randn(5))


@program
def mask_static(wrap: Wrap) -> Step:
    m = torch.tensor([True, False, True, True, False])
    f = wrap(lambda x: (x[m] * 2, x[m.nonzero()[:, 0]], torch.masked_select(x, m)))
    return lambda i: f(randn(5))


@program
def mask2d(wrap: Wrap) -> Step:
    f = wrap(lambda x, m: (x[m], x[:, m[0]], x[m[:, 0]], x[m[:, 0], 1], x[m].shape[0]))
    return lambda i: f(randn(3, 4, 2), (torch.arange(12) < 5 + i % 2).reshape(3, 4))


@program
def mask_empty(wrap: Wrap) -> Step:
    f = wrap(lambda x: (x[x > 10], (x > 10).nonzero(), torch.masked_select(x, x > 10)))
    return lambda i: f(randn(3, 2))


@program
def mask_select_bcast(wrap: Wrap) -> Step:
    f = wrap(
        lambda x, m: (
            torch.masked_select(x, m),
            torch.masked_select(x.sum(), m[0] > 0),
            torch.masked_select(x[0, 0], x[0, 0] < 99),
        )
    )
    return lambda i: f(randn(3, 4), torch.arange(4) < 2)


@program
def mask_put(wrap: Wrap) -> Step:

    def g(x, m, v):
        x[m] = v
        x[x > 1] *= 0.5
        x[m] += 1
        return x * 1

    f = wrap(g)

    def call(i):
        x = randn(5)
        return (f(x, torch.arange(5) < 2 + i % 2, randn(2 + i % 2)), x)

    return call


@program
def nonz(wrap: Wrap) -> Step:
    f = wrap(lambda x: (x > 0).nonzero())
    return lambda i: f(randn(5))


@program
def uint8mask(wrap: Wrap) -> Step:
    f = wrap(lambda x, m: x[m])
    return lambda i: f(randn(4), torch.tensor([1, 0, 1, i % 2], dtype=torch.uint8))


@program
def rep_inter(wrap: Wrap) -> Step:
    f = wrap(lambda x, r: x.repeat_interleave(r, 0))
    return lambda i: f(randn(3, 2), torch.tensor([1, 2, i % 2]))


@program
def size_then_state(wrap: Wrap) -> Step:
    n = torch.zeros(())

    def g(x, m):
        n.add_(1)
        y = x[m]
        n.add_(y.shape[0])
        return y * n

    f = wrap(g)
    return lambda i: (f(randn(5), torch.arange(5) < 2 + i % 2), n.clone())


@program
def uniq(wrap: Wrap) -> Step:
    f = wrap(lambda x: torch.unique(x))
    return lambda i: f(torch.randint(0, 3, (5,)))


@program
def chol_try(wrap: Wrap) -> Step:

    def g(x):
        try:
            return torch.linalg.cholesky(x)
        except RuntimeError:
            return x * 0

    f = wrap(g)
    return lambda i: f(torch.eye(2) * (1.0 if i % 3 else -1.0))


@program
def suppress(wrap: Wrap) -> Step:

    def g(x, i):
        y = x + 1
        with contextlib.suppress(RuntimeError, IndexError):
            y = x[i]
        return y

    f = wrap(g)
    return lambda i: f(randn(3), torch.tensor([[0, 1], [2, 0], [0, 9]][i % 3 if i > 2 else i % 2]))


@program
def try_with_effects(wrap: Wrap) -> Step:
    n = torch.zeros(3)

    def g(x):
        n.add_(1)
        try:
            return torch.linalg.cholesky(x)
        except RuntimeError:
            return x * 0

    f = wrap(g)
    return lambda i: (f(torch.eye(2) * (1.0 if i % 3 else -1.0)), n.clone())


@program
def try_random(wrap: Wrap) -> Step:

    def g(x):
        y = torch.rand(2)
        try:
            return torch.linalg.cholesky(x) + y
        except RuntimeError:
            return x * 0

    f = wrap(g)
    return lambda i: f(torch.eye(2) * (1.0 if i % 3 else -1.0))


@program
def try_outer_function(wrap: Wrap) -> Step:

    def inner(x):
        return torch.linalg.cholesky(x)

    def g(x):
        try:
            return inner(x)
        except RuntimeError:
            return x * 0

    f = wrap(g)
    return lambda i: f(torch.eye(2) * (1.0 if i % 3 else -1.0))


@program
def nan_scalar(wrap: Wrap) -> Step:
    f = wrap(lambda x, k: x * k)
    return lambda i: f(randn(2), [1.0, float("nan"), -0.0, 0.0, 1][i % 5])


@program
def int_vs_bool(wrap: Wrap) -> Step:
    f = wrap(lambda x, k: x * k if isinstance(k, bool) else x + k)
    return lambda i: f(randn(2), [1, True, 1, True, 1.0, 1][i % 6])
