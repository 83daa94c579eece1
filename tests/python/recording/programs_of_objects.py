# SPDX-License-Identifier: Apache-2.0
"""Programs that keep state in objects, containers and variables of threads."""

from __future__ import annotations

import collections
import dataclasses
import threading

import torch
from program_list import Programs, Step, Wrap
from torch import nn

__all__ = ["PROGRAMS"]

PROGRAMS = Programs()
program = PROGRAMS.register
randn = torch.randn


@program
def dataclass_mutated(wrap: Wrap) -> Step:

    @dataclasses.dataclass
    class S:
        pos: torch.Tensor

    def g(s, a):
        s.pos = s.pos + a
        return s.pos * 2

    f = wrap(g)
    s = S(torch.zeros(2))
    return lambda i: (f(s, randn(2)), s.pos.clone())


@program
def deque_state(wrap: Wrap) -> Step:
    d = collections.deque([torch.zeros(2)] * 3, maxlen=3)

    def g(x):
        d.append(x)
        return torch.stack(list(d)).mean(0)

    f = wrap(g)
    return lambda i: f(randn(2))


@program
def deque_of_dicts(wrap: Wrap) -> Step:
    d = collections.deque([{"k": 1.0}, {"k": 2.0}])
    f = wrap(lambda x: x * d[0]["k"] * d[1]["k"])

    def call(i):
        d[1]["k"] = 2.0 if i < 4 else 5.0
        return f(randn(2))

    return call


@program
def deque_of_tensors(wrap: Wrap) -> Step:
    d = collections.deque([torch.ones(2), torch.ones(2)], maxlen=2)
    f = wrap(lambda x: x * d[0] + d[1])

    def call(i):
        if i > 3:
            d.append(randn(2))
        else:
            d[0].add_(1)
        return f(randn(2))

    return call


@program
def python_list_state(wrap: Wrap) -> Step:
    h = [torch.zeros(2)]

    def g(x):
        h[0] = h[0] * 0.5 + x
        return h[0].clone()

    f = wrap(g)
    return lambda i: (f(randn(2)), h[0].clone())


@program
def attr_hyper(wrap: Wrap) -> Step:

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(2, 2)
            self.scale = 1.0

        def forward(self, x):
            return self.l(x) * self.scale

    m = M()
    f = wrap(m)

    def call(i):
        m.scale = [1.0, 1.0, 2.0, 1.0, 3.0, 1.0][i % 6]
        with torch.no_grad():
            return f(randn(1, 2))

    return call


@program
def threads(wrap: Wrap) -> Step:
    w = torch.ones(3)
    f = wrap(lambda x: (x * w).sum())

    def call(i):
        xs = [randn(3) for _ in range(4)]
        out = [None] * 4

        def work(k):
            out[k] = f(xs[k])

        ts = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        [t.start() for t in ts]
        [t.join() for t in ts]
        return out

    return call


@program
def contextvar_threads(wrap: Wrap) -> Step:
    import contextvars

    v = contextvars.ContextVar("v2", default=9.0)
    f = wrap(lambda x: x * v.get())

    def call(i):
        v.set(1.0)
        out = [f(torch.ones(2))]
        t = threading.Thread(target=lambda: out.append(f(torch.ones(2))))
        t.start()
        t.join()
        return out

    return call


@program
def thread_local_threads(wrap: Wrap) -> Step:
    v = threading.local()
    f = wrap(lambda x: x * v.k)

    def call(i):
        out = []

        def w():
            v.k = float(i // 3)
            out.append(f(torch.ones(2)))

        t = threading.Thread(target=w)
        t.start()
        t.join()
        return out

    return call


@program
def thread_name(wrap: Wrap) -> Step:
    f = wrap(lambda x: x * len(threading.current_thread().name))

    def call(i):
        out = []
        t = threading.Thread(target=lambda: out.append(f(torch.ones(2))), name="a" * (i // 3 + 1))
        t.start()
        t.join()
        return out

    return call
