# SPDX-License-Identifier: Apache-2.0
"""Programs that ask functions, classes, modules and builtins what they are."""

from __future__ import annotations

import builtins
import functools
import gc
import inspect
import types
import typing
from typing import Any

import torch
from program_list import Programs

__all__ = ["PROGRAMS", "RUN_EAGERLY"]

PROGRAMS = Programs()
RUN_EAGERLY = frozenset({"subclasses", "subclasses_mapped"})


def kept(a: float = 1.0, *, b: float = 2.0) -> float:
    """A text."""
    return a


@functools.wraps(kept)
def wrapper() -> float:
    return kept()


def _one() -> float:
    return 1.0


def _two_of() -> float:
    return 2.0


def _variable() -> Any:
    value = 2.0

    def get() -> float:
        return value

    def change(number: float) -> None:
        nonlocal value
        value = number

    return get, change


class Base:
    zeta = 1.0


class Named(Base):
    """A class."""

    def method(self) -> float:
        return 1.0


class Root:
    pass


class Meta(type):
    __qualname__ = "Meta"


class WithMeta(metaclass=Meta):
    pass


class AnswersTwo(types.ModuleType):
    def __getattr__(self, name: str) -> float:
        return 2.0


class AnswersThree(types.ModuleType):
    def __getattr__(self, name: str) -> float:
        return 3.0


class HasProperty(types.ModuleType):
    @property
    def value(self) -> float:
        return 3.0


class Module(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class OtherModule(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


def _times_nine(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 9


def _set(value: Any, attribute: str) -> Any:
    return lambda found: setattr(value, attribute, found)


def _set_or_delete(namespace: dict[str, Any], name: str) -> Any:
    def change(value: Any) -> None:
        namespace.pop(name, None)
        if value is not None:
            namespace[name] = value

    return change


def _subclass(made: bool) -> None:
    subclasses.clear()
    gc.collect()
    if made:
        subclasses.append(type("Made", (Root,), {}))


subclasses: list[type] = []
named, module, linear = Named(), Module(), torch.nn.Linear(2, 2)
layers = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
variable, set_variable = _variable()
answering = AnswersTwo("answering")
plain_module = types.ModuleType("plain_module")
plain_module.value, plain_module.kept = 2.0, kept
computing = types.ModuleType("computing")
computing.table = {"q": 2.0}
exec("def __getattr__(name): return table['q']", vars(computing))
kept.mark = 1.0

for name, function, value, attribute, before, now in (
    ("function_name", lambda x: x * len(kept.__name__), kept, "__name__", "a", "bc"),
    ("function_qualname", lambda x: x * len(kept.__qualname__), kept, "__qualname__", "a", "bc"),
    ("function_doc", lambda x: x * len(kept.__doc__), kept, "__doc__", "a", "bc"),
    ("function_module", lambda x: x * len(kept.__module__), kept, "__module__", "a", "bc"),
    (
        *("function_annotations", lambda x: x * len(kept.__annotations__)),
        *(kept, "__annotations__", {}, {"a": float}),
    ),
    (
        *("function_hints", lambda x: x * len(typing.get_type_hints(kept))),
        *(kept, "__annotations__", {"a": int}, {"a": float, "b": int}),
    ),
    ("function_defaults", lambda x: x * kept(), kept, "__defaults__", (1.0,), (3.0,)),
    (
        *("function_signature", lambda x: x * inspect.signature(kept).parameters["a"].default),
        *(kept, "__defaults__", (1.0,), (3.0,)),
    ),
    ("function_code", lambda x: x * _one(), _one, "__code__", _one.__code__, _two_of.__code__),
    ("function_mark", lambda x: x * vars(kept)["ma" + "rk"], kept, "mark", 1.0, 2.0),
    ("function_wrapped", lambda x: x * wrapper.__wrapped__(), wrapper, "__wrapped__", _one, kept),
    (
        "function_unwrapped",
        lambda x: x * inspect.unwrap(wrapper)(),
        wrapper,
        "__wrapped__",
        _one,
        kept,
    ),
    (
        "function_wraps",
        lambda x: x * len(functools.wraps(kept)(lambda: 1).__name__),
        kept,
        "__name__",
        "a",
        "bc",
    ),
    (
        "function_printed",
        lambda x: x * len(repr(kept).split(" at")[0]),
        kept,
        "__qualname__",
        "a",
        "bc",
    ),
    ("class_name", lambda x: x * len(Named.__name__), Named, "__name__", "a", "bc"),
    ("class_name_of_object", lambda x: x * len(type(named).__name__), Named, "__name__", "a", "bc"),
    (
        "class_name_by_class",
        lambda x: x * len(named.__class__.__name__),
        Named,
        "__name__",
        "a",
        "bc",
    ),
    ("class_printed", lambda x: x * len(f"{Named}"), Named, "__qualname__", "a", "bc"),
    (
        "class_of_printed",
        lambda x: x * len(repr(named).split(" object")[0]),
        Named,
        "__qualname__",
        "a",
        "bc",
    ),
    ("class_with_metaclass", lambda x: x * len(f"{WithMeta}"), WithMeta, "__qualname__", "a", "bc"),
    ("class_doc", lambda x: x * len(Named.__doc__), Named, "__doc__", "a", "bc"),
    (
        "class_of_base",
        lambda x: x * Named.__dict__.get("zeta", 5.0) * Named.zeta,
        Base,
        "zeta",
        1.0,
        2.0,
    ),
    ("method_name", lambda x: x * len(named.method.__name__), Named.method, "__name__", "a", "bc"),
    ("module_class", module, module, "__class__", Module, OtherModule),
    ("module_class_in_global", lambda x: module(x), module, "__class__", Module, OtherModule),
    (
        "python_module_class",
        lambda x: x * answering.any,
        answering,
        "__class__",
        AnswersTwo,
        AnswersThree,
    ),
    (
        *("python_module_plain", lambda x: x * plain_module.value),
        *(plain_module, "__class__", types.ModuleType, HasProperty),
    ),
    (
        "python_module_default",
        lambda x: x * plain_module.kept(),
        kept,
        "__defaults__",
        (1.0,),
        (3.0,),
    ),
    (
        "python_module_getattr",
        lambda x: x * computing.any,
        computing,
        "__getattr__",
        computing.__getattr__,
        lambda name: 3.0,
    ),
    (
        "patched_layer",
        lambda x: linear(x).detach(),
        torch.nn.Linear,
        "forward",
        torch.nn.Linear.forward,
        _times_nine,
    ),
    ("patched_inside", layers, torch.nn.ReLU, "forward", torch.nn.ReLU.forward, _times_nine),
    ("patched_function", lambda x: torch.tanh(x), torch, "tanh", torch.tanh, torch.sin),
    ("builtin_injected", lambda x: x * injected, builtins, "injected", 1.0, 2.0),  # noqa: F821
    (
        "builtin_replaced",
        lambda x: x * divmod(7, 2)[0],
        builtins,
        "divmod",
        divmod,
        lambda a, b: (9, 0),
    ),
):
    PROGRAMS.changes(name, function, _set(value, attribute), before, now)

for name, function, set_to, before, now in (
    ("closure_read", lambda x: x * variable.__closure__[0].cell_contents, set_variable, 2.0, 3.0),
    (
        *("closure_asked", lambda x: x * inspect.getclosurevars(variable).nonlocals["value"]),
        *(set_variable, 2.0, 3.0),
    ),
    (
        *("annotation_changed", lambda x: x * len(str(kept.__annotations__["a"]))),
        *(lambda kind: kept.__annotations__.update(a=kind), int, float),
    ),
    (
        "builtin_shadowed",
        lambda x: x * abs(-3),
        _set_or_delete(globals(), "abs"),
        None,
        lambda n: 9,
    ),
    (
        "module_table",
        lambda x: x * computing.other,
        lambda v: computing.table.update(q=v),
        2.0,
        3.0,
    ),
    (
        "module_then_attribute",
        lambda x: x * computing.late,
        _set_or_delete(vars(computing), "late"),
        None,
        3.0,
    ),
    ("subclasses", lambda x: x * len(Root.__subclasses__()), _subclass, False, True),
    (
        "subclasses_mapped",
        lambda x: x * len(next(map(type.__subclasses__, [Root]))),
        _subclass,
        False,
        True,
    ),
):
    PROGRAMS.changes(name, function, set_to, before, now)
