# SPDX-License-Identifier: Apache-2.0
"""Programs that ask what classes, enums and weak references are, which others may change."""

from __future__ import annotations

import abc
import collections.abc
import enum
import functools
import typing
import weakref

import torch
from program_list import Programs, Step, Wrap

__all__ = ["PROGRAMS"]

PROGRAMS = Programs()
program = PROGRAMS.register
randn = torch.randn


@program
def abc_register(wrap: Wrap) -> Step:
    abstract = abc.ABCMeta("A", (), {})

    class C:
        pass

    c = C()
    f = wrap(lambda x: x * (2 if isinstance(c, abstract) else 3))

    def call(i):
        if i == 4:
            abstract.register(C)
        return f(randn(2))

    return call


@program
def abc_register_sub(wrap: Wrap) -> Step:
    abstract = abc.ABCMeta("A", (), {})

    class C:
        pass

    f = wrap(lambda x: x * (2 if issubclass(C, abstract) else 3))

    def call(i):
        if i == 4:
            abstract.register(C)
        return f(randn(2))

    return call


@program
def abc_register_std(wrap: Wrap) -> Step:
    class C:
        pass

    c = C()
    f = wrap(lambda x: x * (2 if isinstance(c, collections.abc.Sequence) else 3))

    def call(i):
        if i == 4:
            collections.abc.Sequence.register(C)
        return f(randn(2))

    return call


@program
def abc_register_match(wrap: Wrap) -> Step:
    class C:
        def __len__(self):
            return 1

        def __getitem__(self, i):
            return [7][i]

    c = C()

    def g(x):
        match c:
            case [a]:
                return x * a
            case _:
                return x

    f = wrap(g)

    def call(i):
        if i == 4:
            collections.abc.Sequence.register(C)
        return f(randn(2))

    return call


@program
def metaclass_instancecheck(wrap: Wrap) -> Step:
    class M(type):
        flag = False

        def __instancecheck__(cls, x):
            return M.flag

    class A(metaclass=M):
        pass

    f = wrap(lambda x: x * (2 if isinstance(3, A) else 3))

    def call(i):
        if i == 4:
            M.flag = True
        return f(randn(2))

    return call


@program
def metaclass_instancecheck_replaced(wrap: Wrap) -> Step:
    class M(type):
        def __instancecheck__(cls, x):
            return False

    class A(metaclass=M):
        pass

    f = wrap(lambda x: x * (2 if isinstance(3, A) else 3))

    def call(i):
        if i == 4:
            M.__instancecheck__ = lambda c, x: True
        return f(randn(2))

    return call


@program
def dispatch_of_abc(wrap: Wrap) -> Step:
    abstract = abc.ABCMeta("A", (), {})

    class C:
        pass

    c = C()

    @functools.singledispatch
    def h(v):
        return 1.0

    h.register(abstract)(lambda v: 5.0)
    f = wrap(lambda x: x * h(c))

    def call(i):
        if i == 4:
            abstract.register(C)
        return f(randn(2))

    return call


@program
def protocol(wrap: Wrap) -> Step:
    @typing.runtime_checkable
    class P(typing.Protocol):
        def quack(self): ...

    class C:
        pass

    c = C()
    f = wrap(lambda x: x * (2 if isinstance(c, P) else 3))

    def call(i):
        if i == 4:
            c.quack = lambda: 1
        return f(randn(2))

    return call


@program
def protocol_class(wrap: Wrap) -> Step:
    @typing.runtime_checkable
    class P(typing.Protocol):
        quack: int

    class C:
        pass

    c = C()
    f = wrap(lambda x: x * (2 if isinstance(c, P) else 3))

    def call(i):
        if i == 4:
            C.quack = 1
        return f(randn(2))

    return call


@program
def class_assign(wrap: Wrap) -> Step:
    class A:
        k = 2.0

    class B:
        k = 3.0

    o = A()
    f = wrap(lambda x: x * o.k)

    def call(i):
        if i == 4:
            o.__class__ = B
        return f(randn(2))

    return call


@program
def class_assign_isinstance(wrap: Wrap) -> Step:
    class A:
        pass

    class B:
        pass

    o = A()
    f = wrap(lambda x: x * (2 if isinstance(o, A) else 3))

    def call(i):
        if i == 4:
            o.__class__ = B
        return f(randn(2))

    return call


@program
def class_assign_module(wrap: Wrap) -> Step:
    class A(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    class B(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * 3

    o = A(2, 2)
    f = wrap(lambda x: o(x).detach())

    def call(i):
        if i == 4:
            o.__class__ = B
        return f(randn(2))

    return call


@program
def class_bases_isinstance(wrap: Wrap) -> Step:
    class A:
        pass

    class A2:
        pass

    class C(A):
        pass

    c = C()
    f = wrap(lambda x: x * (2 if isinstance(c, A) else 3))

    def call(i):
        if i == 4:
            C.__bases__ = (A2,)
        return f(randn(2))

    return call


@program
def getattr_added2(wrap: Wrap) -> Step:
    class C:
        pass

    c = C()
    f = wrap(lambda x: x * (2 if hasattr(c, "k") else 3))

    def call(i):
        if i == 4:
            C.__getattr__ = lambda s, n: 5.0
        return f(randn(2))

    return call


@program
def enum_changed(wrap: Wrap) -> Step:
    class E(enum.Enum):
        A = 1

        @property
        def w(self):
            return self.extra

    E.A.extra = 2.0
    f = wrap(lambda x: x * E.A.w)

    def call(i):
        if i == 4:
            E.A.extra = 3.0
        return f(randn(2))

    return call


@program
def enum_in_state(wrap: Wrap) -> Step:
    class E(enum.Enum):
        A = 1

    E.A.extra = 2.0
    st = {"e": E.A}
    f = wrap(lambda x: x * st["e"].extra)

    def call(i):
        if i == 4:
            E.A.extra = 3.0
        return f(randn(2))

    return call


@program
def enum_value_changed(wrap: Wrap) -> Step:
    class E(enum.Enum):
        A = 2.0

    f = wrap(lambda x: x * E.A.value)

    def call(i):
        if i == 4:
            E.A._value_ = 3.0
        return f(randn(2))

    return call


@program
def enum_mutable_value(wrap: Wrap) -> Step:
    members = enum.Enum("E", {"A": {"k": 2.0}})

    f = wrap(lambda x: x * members.A.value["k"])

    def call(i):
        if i == 4:
            members.A.value["k"] = 3.0
        return f(randn(2))

    return call


@program
def weakref_dies(wrap: Wrap) -> Step:
    class C:
        pass

    st = {"c": C()}
    r = weakref.ref(st["c"])
    f = wrap(lambda x: x * (2 if r() is None else 3))

    def call(i):
        if i == 4:
            del st["c"]
        return f(randn(2))

    return call


@program
def weak_dict(wrap: Wrap) -> Step:
    class C:
        pass

    st = {"c": C()}
    r = weakref.WeakValueDictionary()
    r["a"] = st["c"]
    f = wrap(lambda x: x * (2 if "a" in r else 3))

    def call(i):
        if i == 4:
            del st["c"]
        return f(randn(2))

    return call


@program
def weak_set(wrap: Wrap) -> Step:
    class C:
        pass

    st = {"c": C()}
    r = weakref.WeakSet()
    r.add(st["c"])
    f = wrap(lambda x: x * (2 + len(r)))

    def call(i):
        if i == 4:
            del st["c"]
        return f(randn(2))

    return call


@program
def weak_keydict(wrap: Wrap) -> Step:
    class C:
        pass

    c = C()
    r = weakref.WeakKeyDictionary()
    r[c] = 2.0
    f = wrap(lambda x: x * r[c])

    def call(i):
        if i == 4:
            r[c] = 3.0
        return f(randn(2))

    return call
