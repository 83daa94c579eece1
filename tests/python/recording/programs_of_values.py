# SPDX-License-Identifier: Apache-2.0
"""Programs that tell apart what is equal: keys, elements, bounds, signs of zero; and proxies."""

from __future__ import annotations

import threading
import unittest.mock
import weakref

import torch
from program_list import Programs, Step, Wrap
from torch import nn

__all__ = ["PROGRAMS", "RUN_EAGERLY"]

PROGRAMS = Programs()
program = PROGRAMS.register
randn = torch.randn
ONES = (1, 1.0, True)  # equal, and products with them have other types

# A proxy may be of any age, and what it stands for dies as if nobody looked.
RUN_EAGERLY = frozenset({"weak_proxy", "hidden_attributes"})


def whole(*values: int) -> torch.Tensor:
    return torch.tensor(values)


class Key:
    """Equal by its name alone."""

    def __init__(self, name: str, gain: float) -> None:
        self.name = name
        self.gain = gain

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class AnyInt(int):
    """Equal to any other."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class Config:
    gain = 2.0


class Proxy:
    """Stands for what `make` returns when somebody asks."""

    def __init__(self, make):
        object.__setattr__(self, "_make", make)
        object.__setattr__(self, "_made", None)

    def _get(self):
        if self._made is None:
            object.__setattr__(self, "_made", self._make())
        return self._made

    @property
    def __class__(self):
        return type(self._get())

    def __getattr__(self, name):
        return getattr(self._get(), name)

    def __call__(self, *args):
        return self._get()(*args)


@program
def equal_keys(wrap: Wrap) -> Step:
    f = wrap(lambda d: [value * key.gain for key, value in d.items()])
    return lambda i: f({Key("a", 1.0 if i < 5 else 3.0): torch.ones(2)})


@program
def keys_of_types(wrap: Wrap) -> Step:
    f = wrap(lambda d: [value * key for key, value in d.items()])
    return lambda i: f({ONES[i // 3]: whole(1, 2)})


@program
def keys_that_are_tuples(wrap: Wrap) -> Step:
    f = wrap(lambda d: [value * key[0] for key, value in d.items()])
    return lambda i: f({(ONES[i // 3],): whole(1, 2)})


@program
def keys_that_are_zero(wrap: Wrap) -> Step:
    f = wrap(lambda d: [value / key for key, value in d.items()])
    return lambda i: f({(0.0 if i < 5 else -0.0): torch.ones(2)})


@program
def elements_of_types(wrap: Wrap) -> Step:
    found = {1}
    f = wrap(lambda x: [x * element for element in found])

    def step(i):
        found.clear()
        found.add(ONES[i // 3])
        return f(whole(1, 2))

    return step


@program
def elements_in_order(wrap: Wrap) -> Step:
    found = set()
    f = wrap(lambda x: [x * element for element in found])

    def step(i):
        found.clear()
        for element in (8, 0) if i < 5 else (0, 8):  # they collide: the first one stays first
            found.add(element)
        return f(torch.ones(2))

    return step


@program
def equal_elements(wrap: Wrap) -> Step:
    found = {Key("a", 1.0)}
    f = wrap(lambda x: [x * element.gain for element in found])

    def step(i):
        found.clear()
        found.add(Key("a", 1.0 if i < 5 else 3.0))
        return f(torch.ones(2))

    return step


@program
def frozen_elements(wrap: Wrap) -> Step:
    holder = {}
    f = wrap(lambda x: [x * element for element in holder["set"]])

    def step(i):
        holder["set"] = frozenset([ONES[i // 3]])
        return f(whole(1, 2))

    return step


@program
def range_given(wrap: Wrap) -> Step:
    f = wrap(lambda x, r: x * r.stop)
    return lambda i: f(torch.ones(2), range(0, 3 if i < 5 else 4, 2))  # both are 0, 2


@program
def range_kept(wrap: Wrap) -> Step:
    config = Config()
    f = wrap(lambda x: x * config.range.stop)

    def step(i):
        config.range = range(0, 3 if i < 5 else 4, 2)
        return f(torch.ones(2))

    return step


@program
def slice_given(wrap: Wrap) -> Step:
    f = wrap(lambda x, s: x * s.start)
    return lambda i: f(whole(1, 2), slice(ONES[i // 3], 3))


@program
def slice_kept(wrap: Wrap) -> Step:
    holder = {}
    f = wrap(lambda x: x * holder["slice"].start)

    def step(i):
        holder["slice"] = slice(ONES[i // 3], 3)
        return f(whole(1, 2))

    return step


@program
def complex_zero(wrap: Wrap) -> Step:
    holder = {}
    f = wrap(lambda x: torch.full((2,), holder["z"]).angle() * x)

    def step(i):
        holder["z"] = complex(-1.0, 0.0 if i < 5 else -0.0)
        return f(torch.ones(2))

    return step


@program
def equal_ints(wrap: Wrap) -> Step:
    holder = {}
    f = wrap(lambda x: x * holder["n"])

    def step(i):
        holder["n"] = AnyInt(1 if i < 5 else 3)
        return f(torch.ones(2))

    return step


@program
def of_a_thread(wrap: Wrap) -> Step:
    config = threading.local()
    f = wrap(lambda x: x * config.gain)

    def step(i):
        config.gain = 1.0 if i < 5 else 2.0
        return f(randn(2))

    return step


@program
def equal_classes(wrap: Wrap) -> Step:
    class Meta(type):
        def __eq__(cls, other):
            return True

        def __hash__(cls):
            return 1

    class A(metaclass=Meta):
        gain = 1.0

    class B(metaclass=Meta):
        gain = 10.0

    a, b = A(), B()
    f = wrap(lambda x, o: x * o.gain)
    return lambda i: f(randn(2), a if i < 5 else b)


@program
def proxy_of_numbers(wrap: Wrap) -> Step:
    config = Config()
    proxy = Proxy(lambda: config)
    f = wrap(lambda x: x * proxy.gain)

    def step(i):
        config.gain = 2.0 if i < 5 else 3.0
        return f(randn(2))

    return step


@program
def proxy_of_a_module(wrap: Wrap) -> Step:
    module = nn.Linear(2, 2)
    proxy = Proxy(lambda: module)
    f = wrap(lambda x: proxy(x))

    def step(i):
        if i == 5:
            module.weight = nn.Parameter(torch.ones(2, 2))
        with torch.no_grad():
            module.weight.add_(1)
            return f(torch.ones(2))

    return step


@program
def proxy_called(wrap: Wrap) -> Step:
    module = nn.Linear(2, 2)
    f = wrap(Proxy(lambda: module))

    def step(i):
        if i == 5:
            module.weight = nn.Parameter(torch.ones(2, 2))
        with torch.no_grad():
            return f(torch.ones(2))

    return step


@program
def proxy_that_turns(wrap: Wrap) -> Step:
    first, second = Config(), Config()
    second.gain = 5.0
    proxy = Proxy(lambda: first)
    f = wrap(lambda x: x * proxy.gain)

    def step(i):
        if i == 5:
            object.__setattr__(proxy, "_made", second)
        return f(randn(2))

    return step


@program
def proxy_given(wrap: Wrap) -> Step:
    config = Config()
    proxy = Proxy(lambda: config)
    f = wrap(lambda x, p: x * p.gain)

    def step(i):
        config.gain = 2.0 if i < 5 else 3.0
        return f(randn(2), proxy)

    return step


@program
def proxy_of_a_tensor(wrap: Wrap) -> Step:
    tensors = [torch.ones(2)]
    proxy = Proxy(lambda: tensors[0])
    f = wrap(lambda x, p: x * p._get())

    def step(i):
        tensors[0] += 1
        if i == 5:
            object.__setattr__(proxy, "_made", torch.full((2,), 7.0))
        return f(randn(2), proxy)

    return step


@program
def mock_of_a_module(wrap: Wrap) -> Step:
    mock = unittest.mock.Mock(spec=nn.Linear)
    mock.gain = 2.0
    f = wrap(lambda x: x * mock.gain)

    def step(i):
        mock.gain = 2.0 if i < 5 else 3.0
        return f(randn(2))

    return step


@program
def weak_proxy(wrap: Wrap) -> Step:
    config = Config()
    proxy = weakref.proxy(config)
    f = wrap(lambda x: x * proxy.gain)

    def step(i):
        config.gain = 2.0 if i < 5 else 3.0
        return f(randn(2))

    return step


@program
def hidden_attributes(wrap: Wrap) -> Step:
    class Hidden:
        @property
        def __dict__(self):
            return {"gain": 1.0}

    config = Hidden()
    f = wrap(lambda x: x * config.gain)

    def step(i):
        config.gain = 1.0 if i < 5 else 2.0
        return f(randn(2))

    return step


@program
def types_promoted(wrap: Wrap) -> Step:
    f = wrap(lambda x, y: (x.to(torch.promote_types(x.dtype, y.dtype)) / 3, y))
    return lambda i: f(randn(2), randn(2, dtype=torch.float64))


@program
def script_in_reach(wrap: Wrap) -> Step:
    kept = {"twice": torch.jit.script(scripted), "gain": 2.0}
    f = wrap(lambda x: x * kept["gain"] if x.dim() == 1 else kept["twice"](x))

    def step(i):
        kept["gain"] = 2.0 if i < 5 else 3.0
        return f(randn(2)), f(randn(2, 2))

    return step


def scripted(x: torch.Tensor) -> torch.Tensor:
    return x * 2
