# SPDX-License-Identifier: Apache-2.0
"""Programs in which C code reads attributes, or calls what reads them, past names in the code."""

from __future__ import annotations

import bisect
import builtins
import collections
import copy
import dataclasses
import functools
import heapq
import inspect
import itertools
import json
import operator
import pickle
import random
import string
import time
import types
from typing import Any

import numpy
import torch
from program_list import Programs, Step, Wrap
from torch.utils._pytree import register_dataclass, tree_leaves

__all__ = ["PROGRAMS", "RUN_EAGERLY"]

PROGRAMS = Programs()
# They reach a clock or random numbers, or copy objects by what C code gives of them.
RUN_EAGERLY = frozenset(
    {
        *("copy_copy", "deepcopy", "pickle_dumps", "bound_reduce_ex", "clock_iter"),
        *("clock_partial", "clock_in_dict", "clock_call", "random_starmap", "numpy_random_starmap"),
        "function_globals",
    }
)
program = PROGRAMS.register


class Plain:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("value",)


class SlottedDict(dict):
    __slots__ = ("value",)


class SlottedList(list):
    __slots__ = ("value",)


class SlottedSet(set):
    __slots__ = ("value",)


class SlottedModule(types.ModuleType):
    __slots__ = ("value",)


class SubclassOfDefault(collections.defaultdict):
    pass


class SubclassOfPartial(functools.partial):
    pass


@dataclasses.dataclass
class Data:
    zz: float = 2.0
    inner: Any = None


@dataclasses.dataclass
class Registered:
    yy: float = 2.0


register_dataclass(Registered)


def _digits(value: Any) -> float:
    return float(sum(map(ord, str(value))) % 9973)


def _set(value: Any, name: str = "zz") -> Any:
    return lambda number: setattr(value, name, number)


def _set_factory(kept: Any) -> Any:
    def change(number: float) -> None:
        kept.default_factory = lambda: number

    return change


def _take(kept: Any) -> Any:
    value = kept["q"]
    del kept["q"]
    return value


def _argument(a: float = 1.0) -> float:
    return a


plain, inner = Plain(zz=2.0, ww=types.SimpleNamespace(c=1.0)), Plain(b=Plain(c=2.0))
plains = [Plain(zz=2.0), Plain(zz=1.0)]
space, other_space = types.SimpleNamespace(a=2.0), types.SimpleNamespace(a=2.0)
nested, other_nested = (types.SimpleNamespace(inner=types.SimpleNamespace(z=2.0)) for _ in "ab")
data, other_data = Data(), Data()
registered = Registered()
data_inside = Data(inner=[Data()])
default, default_subclass = collections.defaultdict(), SubclassOfDefault()
slotted, slotted_module = Slotted(), SlottedModule("slotted_module")
slotted_dict, slotted_list, slotted_set = SlottedDict(), SlottedList(), SlottedSet()
Plain.cc = 1.0
alias, bound = getattr, plain.__getattribute__
in_dict, in_list, in_partial = {"g": getattr}, [len, getattr], functools.partial(getattr, plain)
by_object, by_type, all_of, has = object.__getattribute__, type.__getattribute__, vars, hasattr
key = operator.attrgetter("z" * 2)
texts = ["{0." + "z" * 2 + "}", "{o." + "z" * 2 + "}"]
format_bound = texts[0].format
mapping, items, queue = {"k": 2.0}, [2.0], collections.deque([2.0])
part = slice(items, None)
of_mapping, of_items, of_queue = mapping.get, items.__getitem__, queue.__getitem__
partial_of_mapping = functools.partial(mapping.get, "k")
repr_of_space, equals_space = space.__repr__, space.__eq__
partial, partial_with = functools.partial(_argument, 1.0), functools.partial(_argument)
partial_subclass = SubclassOfPartial(_argument)
getter_module = types.ModuleType("getter_module")
getter_module.get, getter_module.plain = operator.attrgetter, plain
clock = functools.partial(time.perf_counter)

for name, function, value, attribute in (
    ("alias_in_global", lambda x: x * alias(plain, "z" * 2), plain, "zz"),
    ("alias_in_closure", (lambda g: lambda x: x * g(plain, "z" * 2))(getattr), plain, "zz"),
    ("alias_in_default", lambda x, g=getattr: x * g(plain, "z" * 2), plain, "zz"),
    ("alias_in_dict", lambda x: x * in_dict["g"](plain, "z" * 2), plain, "zz"),
    ("alias_in_list", lambda x: x * in_list[1](plain, "z" * 2), plain, "zz"),
    ("alias_in_partial", lambda x: x * in_partial("z" * 2), plain, "zz"),
    ("alias_in_map", lambda x: x * next(map(alias, [plain], ["z" * 2])), plain, "zz"),
    (
        *("alias_in_starmap", lambda x: x * next(itertools.starmap(alias, [(plain, "z" * 2)]))),
        *(plain, "zz"),
    ),
    ("alias_in_reduce", lambda x: x * functools.reduce(alias, ["b", "c"], inner), inner.b, "c"),
    ("alias_of_builtins", lambda x: x * builtins.getattr(plain, "z" * 2), plain, "zz"),
    ("alias_of_bound", lambda x: x * bound("z" * 2), plain, "zz"),
    ("alias_of_object", lambda x: x * by_object(plain, "z" * 2), plain, "zz"),
    ("alias_of_type", lambda x: x * by_type(Plain, "c" * 2), Plain, "cc"),
    ("alias_of_vars", lambda x: x * all_of(plain)["z" * 2], plain, "zz"),
    (
        "mapped_vars",
        lambda x: x * sum(sum(d.values()) for d in map(all_of, plains)),
        plains[0],
        "zz",
    ),
    ("getattr_static", lambda x: x * inspect.getattr_static(plain, "z" * 2), plain, "zz"),
    ("getmembers", lambda x: x * dict(inspect.getmembers(plain))["z" * 2], plain, "zz"),
    ("format_computed", lambda x: x * float(texts[0].format(plain)), plain, "zz"),
    ("format_literal", lambda x: x * float("{.zz}".format(plain)), plain, "zz"),  # noqa: UP032
    ("format_nested", lambda x: x * float("{0.zz:>{1}}".format(plain, 4)), plain, "zz"),
    ("format_keyword", lambda x: x * float(texts[1].format(o=plain)), plain, "zz"),
    ("format_map", lambda x: x * float(texts[1].format_map({"o": plain})), plain, "zz"),
    ("format_bound", lambda x: x * float(format_bound(plain)), plain, "zz"),
    ("formatter", lambda x: x * float(string.Formatter().format(texts[0], plain)), plain, "zz"),
    ("json_default", lambda x: x * _digits(json.dumps(plains[0], default=vars)), plains[0], "zz"),
    ("copy_copy", lambda x: x * sum(vars(copy.copy(plains[0])).values()), plains[0], "zz"),
    ("deepcopy", lambda x: x * sum(vars(copy.deepcopy(plains[0])).values()), plains[0], "zz"),
    ("pickle_dumps", lambda x: x * (sum(pickle.dumps(plains[0])) % 997), plains[0], "zz"),
    ("bound_reduce_ex", lambda x: x * _digits(plains[0].__reduce_ex__(2)[2]), plains[0], "zz"),
    ("replaced", lambda x: x * sum(vars(dataclasses.replace(data, inner=1)).values()), data, "zz"),
    ("pytree_leaves", lambda x: x * tree_leaves(registered)[0], registered, "yy"),
    ("dataclass_equal", lambda x: x * (2 if data == other_data else 3), data, "zz"),
    (
        *("asdict_inside", lambda x: x * _digits(dataclasses.asdict(data_inside))),
        *(data_inside.inner[0], "zz"),
    ),
    ("sorted_key", lambda x: x * sorted(plains, key=key).index(plains[0]), plains[0], "zz"),
    ("max_key", lambda x: x * plains.index(max(plains, key=key)), plains[0], "zz"),
    ("map_key", lambda x: x * sum(map(key, plains)), plains[0], "zz"),
    ("filter_key", lambda x: x * len([*filter(key, plains)]), plains[0], "zz"),
    ("bisect_key", lambda x: x * bisect.bisect(plains[:1], 1.5, key=key), plains[0], "zz"),
    ("heapq_key", lambda x: x * plains.index(heapq.nlargest(1, plains, key)[0]), plains[0], "zz"),
    ("partial_key", lambda x: x * functools.partial(key, plains[0])(), plains[0], "zz"),
    ("getter_of_module", lambda x: x * getter_module.get("plain.zz")(getter_module), plain, "zz"),
    ("namespaces_equal", lambda x: x * (2 if space == other_space else 3), space, "a"),
    ("namespaces_in_list", lambda x: x * [space].count(other_space), space, "a"),
    ("namespace_printed", lambda x: x * _digits(f"{space}"), space, "a"),
    ("namespace_percent", lambda x: x * _digits(str.__mod__("%s", (space,))), space, "a"),
    ("namespaces_nested", lambda x: x * (2 if nested == other_nested else 3), nested.inner, "z"),
    ("repr_bound", lambda x: x * _digits(repr_of_space()), space, "a"),
    ("equal_bound", lambda x: x * (2 if equals_space(other_space) is True else 3), space, "a"),
    ("slots_of_dict", lambda x: x * slotted_dict.value, slotted_dict, "value"),
    ("slots_of_list", lambda x: x * slotted_list.value, slotted_list, "value"),
    ("slots_of_set", lambda x: x * slotted_set.value, slotted_set, "value"),
    ("slots_of_module", lambda x: x * slotted_module.value, slotted_module, "value"),
    ("slots_by_member", lambda x: x * Slotted.value.__get__(slotted), slotted, "value"),
    ("partial_attribute", lambda x: x * partial_with.mark, partial_with, "mark"),
    ("partial_subclass", lambda x: x * partial_subclass.mark, partial_subclass, "mark"),
):
    PROGRAMS.changes(name, function, _set(value, attribute), 2.0, 0.0)

for name, function, set_to in (
    ("default_factory", lambda x: x * _take(default), _set_factory(default)),
    ("default_factory_read", lambda x: x * default.default_factory(), _set_factory(default)),
    ("default_factory_copied", lambda x: x * copy.copy(default)["u"], _set_factory(default)),
    ("default_of_subclass", lambda x: x * _take(default_subclass), _set_factory(default_subclass)),
    ("bound_get", lambda x: x * of_mapping("k"), lambda v: mapping.update(k=v)),
    ("bound_get_mapped", lambda x: x * next(map(of_mapping, "k")), lambda v: mapping.update(k=v)),
    ("bound_get_partial", lambda x: x * partial_of_mapping(), lambda v: mapping.update(k=v)),
    ("bound_getitem", lambda x: x * of_items(0), lambda v: items.__setitem__(0, v)),
    ("slice_of_list", lambda x: x * part.start[0], lambda v: items.__setitem__(0, v)),
    ("bound_of_deque", lambda x: x * of_queue(0), lambda v: queue.__setitem__(0, v)),
    (
        "partial_set",
        lambda x: x * partial(),
        lambda v: partial.__setstate__((_argument, (v,), {}, {})),
    ),
    (
        "has_alias",
        lambda x: x * (2 if has(plain, "g" * 2) else 3),
        lambda v: vars(plain).update(gg=1) if v == 3 else vars(plain).pop("gg", 0),
    ),
):
    PROGRAMS.changes(name, function, set_to, 2.0, 3.0)


def _seen_before(make: Any) -> Any:
    """Make a program that tells whether a value has come before."""

    def program(wrap: Wrap) -> Step:
        known = set()
        f = wrap(make())

        def call(i):
            value = float(f(torch.zeros(1, dtype=torch.float64)))
            found = value in known
            known.add(value)
            return torch.tensor(found)

        return call

    return program


clocks = {"c": time.perf_counter}
PROGRAMS["clock_iter"] = _seen_before(lambda: lambda x: x + next(iter(time.perf_counter, None)))
PROGRAMS["clock_partial"] = _seen_before(lambda: lambda x: x + clock())
PROGRAMS["clock_in_dict"] = _seen_before(
    lambda: lambda x: x + next(itertools.starmap(clocks["c"], [()]))
)
PROGRAMS["clock_call"] = _seen_before(lambda: lambda x: x + time.perf_counter.__call__())
PROGRAMS["random_starmap"] = _seen_before(
    lambda: lambda x: x + next(itertools.starmap(random.random, [()]))
)
PROGRAMS["numpy_random_starmap"] = _seen_before(
    lambda: lambda x: x + next(itertools.starmap(numpy.random.rand, [()]))
)


@program
def clock_not_asked(wrap: Wrap) -> Step:
    timed = False

    def g(x):
        if timed:
            return x + time.time()
        return x * 2

    f = wrap(g)
    return lambda i: f(torch.randn(2))


@program
def function_globals(wrap: Wrap) -> Step:
    f = wrap(lambda x: x * _argument.__globals__["STATE" + ""])

    def call(i):
        globals()["STATE"] = 2.0 if i < 4 else 3.0
        return f(torch.randn(2))

    return call
