# SPDX-License-Identifier: Apache-2.0
"""Programs that keep state between calls, in tensors."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from program_list import Programs, Step, Wrap
from torch import nn

__all__ = ["PROGRAMS"]

PROGRAMS = Programs()
program = PROGRAMS.register
randn = torch.randn


@program
def control_loop_state(wrap: Wrap) -> Step:

    class C:
        def __init__(self):
            self.h = torch.zeros(4)
            self.w = randn(4, 4)

        def step(self, x):
            self.h = torch.tanh(self.h @ self.w + x)
            return self.h * 2

    c = C()
    f = wrap(c.step)
    return lambda i: (f(randn(4)), c.h.clone())


@program
def replay_buffer(wrap: Wrap) -> Step:
    buf = torch.zeros(5, 3)
    pos = torch.zeros((), dtype=torch.long)

    def push(x):
        buf[pos] = x
        pos.add_(1).remainder_(5)
        return buf.mean(0)

    f = wrap(push)
    return lambda i: (f(randn(3)), buf.clone(), pos.clone())


@program
def replay_buffer_int(wrap: Wrap) -> Step:

    class B:
        def __init__(self):
            self.buf = torch.zeros(5, 3)
            self.n = 0

        def push(self, x):
            self.buf[self.n % 5] = x
            self.n += 1
            return self.buf.sum(0)

    b = B()
    f = wrap(b.push)
    return lambda i: (f(randn(3)), b.buf.clone(), b.n)


@program
def running_stats(wrap: Wrap) -> Step:
    m = torch.zeros(3)
    v = torch.ones(3)
    n = torch.tensor(0.0)

    def g(x):
        nonlocal m
        n.add_(1)
        d = x - m
        m = m + d / n
        v.add_(d * (x - m))
        return (x - m) / v.sqrt()

    f = wrap(g)
    return lambda i: (f(randn(3)), m.clone(), v.clone())


@program
def view_returned_of_state(wrap: Wrap) -> Step:
    b = torch.zeros(4, 2)

    def g(x):
        b.add_(x)
        return b[1:]

    f = wrap(g)

    def call(i):
        y = f(randn(2))
        y.mul_(2)
        return (y.clone(), b.clone())

    return call


@program
def weight_swap(wrap: Wrap) -> Step:
    m = nn.Linear(3, 3)
    f = wrap(m)

    def call(i):
        if i % 2:
            m.weight = nn.Parameter(randn(3, 3))
        with torch.no_grad():
            return f(randn(2, 3))

    return call


@program
def data_swap(wrap: Wrap) -> Step:
    m = nn.Linear(3, 3)
    f = wrap(m)

    def call(i):
        if i % 2:
            m.weight.data = randn(3, 3)
        else:
            m.bias.data.mul_(2)
        with torch.no_grad():
            return f(randn(2, 3))

    return call


@program
def deepcopied(wrap: Wrap) -> Step:
    m = nn.Linear(3, 3)
    f = [wrap(m)]

    def call(i):
        if i == 3:
            f[0] = copy.deepcopy(f[0])
        with torch.no_grad():
            return f[0](randn(2, 3))

    return call


@program
def argmax_index(wrap: Wrap) -> Step:
    q = randn(4, 3)

    def g(s):
        a = q[s].argmax()
        q[s, a] += 0.5
        return a

    f = wrap(g)
    return lambda i: (f(torch.tensor(i % 4)), q.clone())


@program
def tensor_attr_new(wrap: Wrap) -> Step:

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros(()))

        def forward(self, x):
            self.n += 1
            return x / self.n

    m = M()
    f = wrap(m)
    return lambda i: (f(randn(2)), m.n.clone())


@program
def kv_cache_tensor_pos(wrap: Wrap) -> Step:
    k = torch.zeros(8, 2)

    def g(x, pos):
        k.index_copy_(0, pos, x[None])
        m = torch.arange(8) <= pos
        s = (k @ x).masked_fill(~m, -1000000000.0)
        return F.softmax(s, 0) @ k

    f = wrap(g)
    return lambda i: f(randn(2), torch.tensor([i % 8]))


@program
def set_shared_tensor(wrap: Wrap) -> Step:
    a = torch.zeros(3)
    b = a[1:]

    def g(x):
        a.add_(x)
        return b * 2

    f = wrap(g)
    return lambda i: (f(randn(3)), a.clone())


@program
def untie(wrap: Wrap) -> Step:
    st = {"a": torch.zeros(3)}
    st["b"] = st["a"]

    def g(x):
        st["a"].add_(x)
        return st["b"].clone()

    f = wrap(g)

    def call(i):
        if i == 4:
            st["b"] = torch.ones(3)
        return (f(randn(3)), st["a"].clone())

    return call


@program
def arg_alias_state(wrap: Wrap) -> Step:
    a = torch.zeros(3)

    def g(x):
        a.add_(1)
        return x * 2

    f = wrap(g)
    return lambda i: (f(a if i % 3 == 2 else randn(3)), a.clone())
