# SPDX-License-Identifier: Apache-2.0
"""Recording looks at what a call can reach, and calls nothing that its classes define."""

from __future__ import annotations

import collections
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor

import hostjit
from hostjit.recording.code.names import globals_of

MAKERS = [
    hostjit.capture,
    # Dynamo asks them, and what they raise makes the function run eagerly.
    pytest.param(hostjit.compile, marks=pytest.mark.filterwarnings("ignore:hostjit")),
]


def never(*args: Any, **kwargs: Any) -> NoReturn:
    raise KeyError("called by nobody but its user")


READERS = ("__iter__", "__len__", "__getitem__", "__contains__", "keys", "values", "items", "get")


def lazy(kind: type) -> type:
    """A class of containers that load what they say they have when somebody asks."""
    return type(f"Lazy{kind.__name__}", (kind,), dict.fromkeys(READERS, never))


def filled(kind: type) -> Any:
    items: Any = {"a": 1, "b": 2} if issubclass(kind, dict) else [1, 2]
    return lazy(kind)(items)


class WithAttributes:
    """Its attributes are looked up in a dict, by code that raises another error."""

    def __init__(self, scale: float) -> None:
        self.known = {"scale": scale}

    def __getattr__(self, name: str) -> Any:
        return self.known[name]


class WithSlots:
    """The same, without a `__dict__`."""

    __slots__ = ("known",)

    def __init__(self, scale: float) -> None:
        self.known = {"scale": scale}

    def __getattr__(self, name: str) -> Any:
        return self.known[name]


@pytest.mark.parametrize(
    "kind", [dict, collections.OrderedDict, list, tuple, set, frozenset, collections.deque]
)
@pytest.mark.parametrize("make", MAKERS)
def test_containers_are_not_asked(make: Callable[..., Any], kind: type) -> None:
    container = filled(kind)
    container.scale = 2.0

    def step(x: Tensor) -> Tensor:
        return x * container.scale + 1

    fast = make(step)
    # Recordings leave a third value to hostjit.compile.
    for scale in (2.0, 3.0, 2.0 if make is hostjit.capture else 4.0):
        container.scale = scale
        for _ in range(3):
            x = torch.randn(4)
            assert torch.equal(fast(x), step(x))


@pytest.mark.parametrize("kind", [WithAttributes, WithSlots])
@pytest.mark.parametrize("make", MAKERS)
def test_attributes_are_not_asked_for(make: Callable[..., Any], kind: Any) -> None:
    settings = kind(2.0)

    def step(x: Tensor) -> Tensor:
        return x * settings.scale + 1

    fast = make(step)
    # Recordings leave a third value to hostjit.compile.
    for scale in (2.0, 3.0, 2.0 if make is hostjit.capture else 4.0):
        settings.known["scale"] = scale
        for _ in range(3):
            x = torch.randn(4)
            assert torch.equal(fast(x), step(x))


class Tables(dict[str, Any]):
    """Tables that are read when somebody asks, which a recording must not do."""

    loaded = 0

    def items(self) -> Any:
        Tables.loaded += 1
        return super().items()

    def __iter__(self) -> Iterator[str]:
        Tables.loaded += 1
        return super().__iter__()


def test_a_recording_loads_nothing() -> None:
    tables = Tables(gain=2.0)

    def step(x: Tensor) -> Tensor:
        return x * tables["gain"]

    fast = hostjit.capture(step)
    x = torch.randn(4)
    for gain in (2.0, 3.0):
        dict.__setitem__(tables, "gain", gain)
        for _ in range(4):
            assert torch.equal(fast(x), x * gain)
    assert Tables.loaded == 0


SPECIAL = [
    *("eq", "ne", "hash", "bool", "len", "repr", "str", "format", "iter", "getitem", "contains"),
    *("dir", "copy", "deepcopy", "reduce", "reduce_ex", "getstate", "index", "float", "int"),
    *("array", "torch_function", "getattr", "call", "get", "lt"),
]
MEMBERS = ["tobytes", "dtype", "shape", "fields", "__self__", "__name__", "_fields", "__code__"]


def stubborn(*bases: type, claims: Any = None, meta: type = type) -> Any:
    """A class whose objects raise, whatever they are asked; they say that they are of another."""
    members: dict[str, Any] = {f"__{name}__": never for name in SPECIAL}
    members.update({name: property(never) for name in MEMBERS})
    if claims is not None:
        members["__class__"] = property(lambda self: claims)
    return meta("Stubborn", bases, members)


class Meta(type):
    __eq__ = __bool__ = __len__ = __repr__ = __getattr__ = never
    __instancecheck__ = __subclasscheck__ = never
    __hash__ = never


CLAIMS = [
    *(torch.Tensor, torch.nn.Parameter, torch.nn.Module, torch.optim.SGD, torch.Generator),
    *(dict, list, tuple, set, frozenset, collections.deque, int, float, str, type(None)),
    *(type, property, slice, bytearray, BaseException, types.FunctionType, types.ModuleType),
    *(types.MethodType, types.BuiltinFunctionType, types.SimpleNamespace, weakref.ref),
]
STUBBORN = {
    "any": stubborn(),
    "of_meta": Meta("OfMeta", (), {}),
    "both": stubborn(meta=Meta),
    **{f"claims_{kind.__name__}": stubborn(claims=kind) for kind in CLAIMS},
    **{
        f"sub_{kind.__name__}": stubborn(kind)
        for kind in (dict, list, tuple, set, frozenset, int, float, str, bytes, bytearray)
    },
}


@pytest.mark.parametrize("name", STUBBORN)
def test_nothing_is_asked_of_objects(name: str) -> None:
    value = STUBBORN[name]()
    held = types.SimpleNamespace(value=value)
    inside = [value]

    def step(x: Tensor, *values: Any) -> Any:
        return x * 2, inside, held.value

    def given(x: Tensor, *values: Any) -> Any:
        return x * 2

    fast, fast_given = hostjit.capture(step), hostjit.capture(given)
    for _ in range(4):
        x = torch.randn(4)
        found, container, attribute = fast(x)
        assert torch.equal(found, x * 2)
        assert container is inside
        assert attribute is value
        assert torch.equal(fast_given(x, value, [value], {"key": value}), x * 2)


def test_what_pytest_adds_to_an_assertion_is_no_state() -> None:
    def step(x: Tensor) -> Tensor:
        assert x.dim() == 1
        return x * 2

    assert {name for name in step.__code__.co_names if name.startswith("@")}
    assert not {name for name in globals_of(step.__code__) if name.startswith("@")}
