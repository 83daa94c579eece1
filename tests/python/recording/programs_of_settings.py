# SPDX-License-Identifier: Apache-2.0
"""Programs that reach modules, settings and fields past the names of their code."""

from __future__ import annotations

import collections
import dataclasses
import importlib
import operator
import os
import sys
import threading
import types
import typing

import torch
from program_list import Programs, Step, Wrap

__all__ = ["PROGRAMS"]

PROGRAMS = Programs()
program = PROGRAMS.register
randn = torch.randn


@program
def sys_modules(wrap: Wrap) -> Step:
    m = types.ModuleType("probe_m")
    m.k = 2.0
    sys.modules["probe_m"] = m

    def g(x):
        import probe_m

        return x * probe_m.k

    f = wrap(g)

    def call(i):
        if i == 3:
            m.k = 2.5
        if i == 5:
            n = types.ModuleType("probe_m")
            n.k = 3.0
            sys.modules["probe_m"] = n
        return f(randn(2))

    return call


@program
def sys_modules_from(wrap: Wrap) -> Step:
    m = types.ModuleType("probe_m2")
    m.k = 2.0
    sys.modules["probe_m2"] = m

    def g(x):
        from probe_m2 import k

        return x * k

    f = wrap(g)

    def call(i):
        if i == 3:
            m.k = 2.5
        if i == 5:
            n = types.ModuleType("probe_m2")
            n.k = 3.0
            sys.modules["probe_m2"] = n
        return f(randn(2))

    return call


@program
def importlib_import(wrap: Wrap) -> Step:
    m = types.ModuleType("probe_m5")
    m.k = 2.0
    sys.modules["probe_m5"] = m
    f = wrap(lambda x: x * importlib.import_module("probe_m5").k)

    def call(i):
        if i == 3:
            m.k = 2.5
        if i == 5:
            n = types.ModuleType("probe_m5")
            n.k = 3.0
            sys.modules["probe_m5"] = n
        return f(randn(2))

    return call


@program
def import_error(wrap: Wrap) -> Step:
    sys.modules.pop("probe_m6", None)

    def g(x):
        try:
            import probe_m6

            return x * probe_m6.k
        except ImportError:
            return x * 3

    f = wrap(g)

    def call(i):
        if i == 5:
            sys.modules["probe_m6"] = types.SimpleNamespace(k=2.0)
        return f(randn(2))

    return call


@program
def dunder_import(wrap: Wrap) -> Step:
    m = types.ModuleType("probe_m7")
    m.k = 2.0
    sys.modules["probe_m7"] = m
    f = wrap(lambda x: x * __import__("probe_m7").k)

    def call(i):
        if i == 3:
            m.k = 2.5
        if i == 5:
            n = types.ModuleType("probe_m7")
            n.k = 3.0
            sys.modules["probe_m7"] = n
        return f(randn(2))

    return call


@program
def environ_getenv(wrap: Wrap) -> Step:
    os.environ.pop("PROBE", None)
    f = wrap(lambda x: x * float(os.getenv("PROBE", "2")))

    def call(i):
        if i == 4:
            os.environ["PROBE"] = "3"
        return f(randn(2))

    return call


class Plain:
    def __init__(self):
        self.zeta = 2.0


class Whole(int):
    zeta = 2.0


class Pair(typing.NamedTuple):
    left: int


class NamedPair(Pair):
    zeta = 2.0


class Listed(list):
    pass


class Mapped(dict):
    zeta = 2.0

    def __getitem__(self, key):
        return self.zeta


class Holder(tuple):
    pass


@dataclasses.dataclass
class Config:
    zeta: float = 2.0
    other: float = 1.0


plain, whole, listed, mapped, config = Plain(), Whole(2), Listed(), Mapped(), Config()
error, cell, lock = ValueError(2.0), types.CellType(2.0), threading.Lock()
held, values = {"zeta": 2.0}, {"zeta": 2.0}
holder, view, proxy = Holder((held,)), values.values(), types.MappingProxyType(values)
ordered = collections.OrderedDict(a=2.0, b=3.0)
linear = torch.nn.Linear(2, 2)
hooks = torch.nn.modules.module
pair = NamedPair(1)


def _keywords(*, a=2.0):
    return a


def _by_position(x):
    match config:
        case Config(2.0):
            return x * 2
    return x * 3


def _by_keyword(x):
    match plain:
        case Plain(zeta=2.0):
            return x * 2
    return x * 3


def _set(value: typing.Any) -> typing.Callable[[float], None]:
    return lambda number: setattr(value, "zeta", number)


def _lock(wanted: bool) -> None:
    if wanted != lock.locked():
        lock.acquire() if wanted else lock.release()


def _hook(wanted: bool) -> None:
    hooks._global_forward_hooks.clear()
    if wanted:
        hooks.register_module_forward_hook(lambda module, args, result: result * 2)


for name, function, value in (
    ("asdict", lambda x: x * sum(dataclasses.asdict(config).values()), config),
    ("astuple", lambda x: x * dataclasses.astuple(config)[0], config),
    ("matched_by_position", _by_position, config),
    ("matched_by_keyword", _by_keyword, plain),
    ("formatted", lambda x: x * float(str.format("{0.zeta}", plain)), plain),
    ("getattribute", lambda x: x * plain.__getattribute__("ze" + "ta"[:2]), plain),
    ("attrgetter_made", lambda x: x * operator.attrgetter("".join("zeta"))(plain), plain),
    ("int_subclass", lambda x: x * whole.zeta, whole),
    ("namedtuple_subclass", lambda x: x * pair.zeta, NamedPair),
    ("list_subclass", lambda x: x * listed.zeta, listed),
    ("dict_subclass", lambda x: x * mapped["a"], mapped),
):
    PROGRAMS.changes(name, function, _set(value), 2.0, 3.0)

for name, function, set_to, before, now in (
    ("tuple_subclass", lambda x: x * holder[0]["zeta"], held.update, {"zeta": 2.0}, {"zeta": 3.0}),
    ("dict_view", lambda x: x * sum(view), values.update, {"zeta": 2.0}, {"zeta": 3.0}),
    ("mapping_proxy", lambda x: x * proxy["zeta"], values.update, {"zeta": 2.0}, {"zeta": 3.0}),
    (
        *("cell", lambda x: x * cell.cell_contents),
        *(lambda number: setattr(cell, "cell_contents", number), 2.0, 3.0),
    ),
    ("exception", lambda x: x * error.args[0], lambda n: setattr(error, "args", (n,)), 2.0, 3.0),
    (
        *("ordered", lambda x: x * next(iter(ordered.values()))),
        *(lambda last: ordered.move_to_end("a", last=last), False, True),
    ),
    (
        "keyword_defaults",
        lambda x: x * _keywords(),
        _keywords.__kwdefaults__.update,
        {"a": 2.0},
        {"a": 3.0},
    ),
    (
        *("dir", lambda x: x * len(dir(plain))),
        *(lambda more: vars(plain).update(g=1) if more else vars(plain).pop("g", 0), False, True),
    ),
    ("lock", lambda x: x * (2 if lock.locked() else 3), _lock, False, True),
    ("global_hook", lambda x: linear(x).detach(), _hook, False, True),
    ("recursion_limit", lambda x: x * sys.getrecursionlimit(), sys.setrecursionlimit, 1000, 2000),
    (
        *("anomalies", lambda x: x * (2 if torch.is_anomaly_enabled() else 3)),
        *(torch.autograd.set_detect_anomaly, False, True),
    ),
    (
        *("autocast_dtype", lambda x: x * torch.get_autocast_dtype("cpu").itemsize),
        *(lambda dtype: torch.set_autocast_dtype("cpu", dtype), torch.bfloat16, torch.float32),
    ),
):
    PROGRAMS.changes(name, function, set_to, before, now)
