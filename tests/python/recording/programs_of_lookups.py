# SPDX-License-Identifier: Apache-2.0
"""Programs that look up what they compute with in ways that are not seen in their code."""

from __future__ import annotations

import functools

import torch
from program_list import Programs, Step, Wrap

__all__ = ["PROGRAMS"]

PROGRAMS = Programs()
program = PROGRAMS.register
randn = torch.randn


@program
def lru_cleared(wrap: Wrap) -> Step:
    st = {"k": 2.0}

    @functools.lru_cache
    def h():
        return st["k"]

    f = wrap(lambda x: x * h())

    def call(i):
        if i == 4:
            st["k"] = 3.0
        if i == 6:
            h.cache_clear()
        return f(randn(2))

    return call


@program
def operator_attrgetter(wrap: Wrap) -> Step:
    import operator

    class K:
        a = 2.0

    k = K()
    g = operator.attrgetter("a")
    f = wrap(lambda x: x * g(k))

    def call(i):
        if i == 4:
            k.a = 5.0
        return f(randn(2))

    return call


@program
def methodcaller(wrap: Wrap) -> Step:
    import operator

    class K:
        a = 2.0

        def m(self):
            return self.a

    k = K()
    g = operator.methodcaller("m")
    f = wrap(lambda x: x * g(k))

    def call(i):
        if i == 4:
            k.a = 5.0
        return f(randn(2))

    return call


@program
def globals_read(wrap: Wrap) -> Step:
    global GK
    GK = 2.0
    f = wrap(lambda x: x * globals()["GK"])

    def call(i):
        global GK
        GK = 2.0 if i < 4 else 3.0
        return f(randn(2))

    return call


@program
def memoryview_read(wrap: Wrap) -> Step:
    b = bytearray([2])
    c = memoryview(b)
    f = wrap(lambda x: x * c[0])

    def call(i):
        if i == 4:
            b[0] = 3
        return f(randn(2))

    return call


@program
def numpy_object(wrap: Wrap) -> Step:
    import numpy as np

    a = np.array([{"k": 2.0}], dtype=object)
    f = wrap(lambda x: x * a[0]["k"])

    def call(i):
        if i == 4:
            a[0]["k"] = 3.0
        return f(randn(2))

    return call


@program
def arg_attr(wrap: Wrap) -> Step:
    f = wrap(lambda x: x * x.scale)

    def call(i):
        x = randn(2)
        x.scale = 2.0 if i < 4 else 3.0
        return f(x)

    return call


@program
def arg_is_leaf(wrap: Wrap) -> Step:
    f = wrap(lambda x: x.detach() * (2 if x.is_leaf else 3))

    def call(i):
        x = randn(2).requires_grad_()
        y = x * 1
        return f(x if i % 3 else y)

    return call


@program
def arg_is_view(wrap: Wrap) -> Step:
    f = wrap(lambda x: x * (2 if x._is_view() else 3))
    b = randn(6)
    return lambda i: f(b[:2] if i % 2 else randn(2))


@program
def arg_pinned_shared(wrap: Wrap) -> Step:
    f = wrap(lambda x: x * (2 if x.is_shared() else 3))

    def call(i):
        x = randn(2)
        if i % 2:
            x.share_memory_()
        return f(x)

    return call


@program
def num_threads(wrap: Wrap) -> Step:
    f = wrap(lambda x: x * torch.get_num_threads())
    n = torch.get_num_threads()

    def call(i):
        torch.set_num_threads(1 if i < 4 else 2)
        try:
            return f(randn(2))
        finally:
            torch.set_num_threads(n)

    return call


@program
def backend_flags(wrap: Wrap) -> Step:
    f = wrap(lambda x: x * (2 if torch.backends.mkldnn.enabled else 3))

    def call(i):
        with torch.backends.mkldnn.flags(enabled=i < 4):
            return f(randn(2))

    return call


@program
def matmul_precision(wrap: Wrap) -> Step:
    f = wrap(lambda x: x * (2 if torch.get_float32_matmul_precision() == "highest" else 3))

    def call(i):
        torch.set_float32_matmul_precision("highest" if i < 4 else "high")
        try:
            return f(randn(2))
        finally:
            torch.set_float32_matmul_precision("highest")

    return call


@program
def method_replaced(wrap: Wrap) -> Step:

    class K:
        def act(self, x):
            return x * 2

    k = K()
    f = wrap(lambda x: k.act(x))

    def call(i):
        if i == 4:
            K.act = lambda s, x: x * 3
        if i == 6:
            k.act = lambda x: x * 4
        return f(randn(2))

    return call


@program
def dunder_len(wrap: Wrap) -> Step:

    class K:
        def __init__(self):
            self.items = [1, 2]

        def __len__(self):
            return len(self.items)

        def __iter__(self):
            return iter(self.items)

        def __contains__(self, v):
            return v in self.items

        def __getitem__(self, i):
            return self.items[i]

    k = K()
    f = wrap(lambda x: x * len(k) + sum(k) + (5 in k) + k[0])

    def call(i):
        if i == 4:
            k.items.append(5)
        return f(randn(2))

    return call


@program
def descriptor(wrap: Wrap) -> Step:

    class D:
        v = 2.0

        def __get__(self, o, t):
            return D.v

    class K:
        g = D()

    k = K()
    f = wrap(lambda x: x * k.g)

    def call(i):
        if i == 4:
            D.v = 3.0
        return f(randn(2))

    return call


@program
def singledispatch(wrap: Wrap) -> Step:

    @functools.singledispatch
    def h(v):
        return 1.0

    f = wrap(lambda x: x * h(3))

    def call(i):
        if i == 4:
            h.register(int)(lambda v: 5.0)
        return f(randn(2))

    return call
