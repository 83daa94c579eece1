# SPDX-License-Identifier: Apache-2.0
"""What classes define may be replaced between calls: each kind of method, of each kind of class."""

from __future__ import annotations

import abc
import dataclasses
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensor

import hostjit

X = torch.arange(3.0)

# What a class is at first, what of it is replaced by what, and what is computed with the class.
Replacement = tuple[str, Any]
Function = Callable[[Any, Tensor], Any]


def _set_one(self: Any, *_: Any) -> None:
    self.v = 1.0


def _set_two(self: Any, *_: Any) -> None:
    self.v = 2.0


def _make(value: float) -> Callable[..., float]:
    return lambda self, *_: value


def _by_default(value: float) -> Callable[..., float]:
    def method(self: Any, v: float = value) -> float:
        return v

    return method


def _new(cls: Any) -> Any:
    made = object.__new__(cls)
    made.v = 2.0
    return made


def _enter(cls: Any, x: Tensor) -> Tensor:
    with cls() as value:
        return x + value


def _leave(cls: Any, x: Tensor) -> Tensor:
    manager = cls()
    with manager:
        pass
    return x + manager.v


def _handle(cls: Any, x: Tensor) -> Tensor:
    try:
        raise cls
    except cls as error:
        return x + error.g()


class _Base:
    v = 1.0

    def g(self) -> float:
        return 1.0


def _members(**members: Any) -> Callable[[], type]:
    return lambda: type("Made", (), members)


def _derived(*bases: type, **members: Any) -> Callable[[], type]:
    return lambda: type("Made", bases, members)


def _dataclass() -> type:
    @dataclasses.dataclass
    class Made:
        v: float = 0.0

        def __post_init__(self) -> None:
            self.v += 1

    return Made


CASES: dict[str, tuple[Callable[[], type], Replacement, Function]] = {
    "method": (_members(g=_make(1)), ("g", _make(2)), lambda c, x: x + c().g()),
    "default": (_members(g=_by_default(1)), ("g", _by_default(2)), lambda c, x: x + c().g()),
    "hides a method": (_derived(_Base), ("g", _make(2)), lambda c, x: x + c().g()),
    "hides a number": (_derived(_Base), ("v", 2.0), lambda c, x: x + c().v),
    "of the class": (
        _members(g=classmethod(_make(1))),
        ("g", classmethod(_make(2))),
        lambda c, x: x + c.g(),
    ),
    "property": (_members(g=property(_make(1))), ("g", property(_make(2))), lambda c, x: x + c().g),
    "__init__": (_members(__init__=_set_one), ("__init__", _set_two), lambda c, x: x + c().v),
    "gains __init__": (_members(v=1.0), ("__init__", _set_two), lambda c, x: x + c().v),
    "gains __new__": (_members(v=1.0), ("__new__", staticmethod(_new)), lambda c, x: x + c().v),
    "__post_init__": (_dataclass, ("__post_init__", _set_two), lambda c, x: x + c().v),
    "__getattr__": (
        _members(__getattr__=_make(1)),
        ("__getattr__", _make(2)),
        lambda c, x: x + c().anything,
    ),
    "gains __getattr__": (
        _members(),
        ("__getattr__", _make(2)),
        lambda c, x: x + getattr(c(), "anything", 1.0),
    ),
    "gains __getattribute__": (
        _members(v=1.0),
        ("__getattribute__", _make(2)),
        lambda c, x: x + c().v,
    ),
    "gains __bool__": (
        _members(),
        ("__bool__", lambda self: False),
        lambda c, x: x + 1 if c() else x,
    ),
    "__str__": (
        _members(__str__=lambda self: "a"),
        ("__str__", lambda self: "bb"),
        lambda c, x: x + len(str(c())),
    ),
    "__enter__": (
        _members(__enter__=_make(1), __exit__=_set_one),
        ("__enter__", _make(2)),
        _enter,
    ),
    "__exit__": (
        _members(__enter__=_make(1), __exit__=_set_one),
        ("__exit__", _set_two),
        _leave,
    ),
    "of a metaclass": (
        lambda: type("Meta", (type,), {"g": _make(1)})("Made", (), {}),
        ("g", _make(2)),
        lambda c, x: x + c.g(),
    ),
    "of a dict": (_derived(dict), ("get", _make(2)), lambda c, x: x + c(a=1.0).get("a")),
    "__missing__": (
        _derived(dict, __missing__=_make(1)),
        ("__missing__", _make(2)),
        lambda c, x: x + c()["a"],
    ),
    "of an error": (_derived(ValueError, g=_make(1)), ("g", _make(2)), _handle),
    "of a module": (
        _derived(nn.Module, forward=lambda self, x: x + 1),
        ("forward", lambda self, x: x + 2),
        lambda c, x: c()(x),
    ),
    "of a function of autograd": (
        _derived(
            torch.autograd.Function,
            forward=staticmethod(lambda context, x: x + 1),
            backward=staticmethod(lambda context, gradient: gradient),
        ),
        ("forward", staticmethod(lambda context, x: x + 2)),
        lambda c, x: c.apply(x),
    ),
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "hostjit.compile": hostjit.compile,
    "torch.compile": lambda function: torch.compile(function, backend="hostjit"),
}


@pytest.fixture(params=WAYS)
def compiled(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    torch.compiler.reset()
    return WAYS[request.param]


def _answers(
    compiled: Callable[[Any], Any],
    make: Callable[[], type],
    replacement: Replacement,
    function: Function,
) -> Iterator[Tensor]:
    kind: Any = make()
    fast = compiled(lambda x: function(kind, x))
    yield fast(X)
    yield fast(X)
    setattr(type(kind) if "g" in vars(type(kind)) else kind, *replacement)
    yield fast(X)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:hostjit")
def test_replaced_methods_are_called(compiled: Callable[[Any], Any], case: str) -> None:
    expected = list(_answers(lambda function: function, *CASES[case]))
    found = list(_answers(compiled, *CASES[case]))
    assert not torch.equal(expected[1], expected[2])
    for mine, eager in zip(found, expected, strict=True):
        assert torch.equal(mine, eager)


def test_functions_have_other_code(compiled: Callable[[Any], Any]) -> None:
    class Made:
        def __init__(self, v: float = 1.0) -> None:
            self.v = v

    def other(self: Any, v: float = 1.0) -> None:
        self.v = v + 1

    fast = compiled(lambda x: x + Made().v)
    assert torch.equal(fast(X), X + 1)
    Made.__init__.__defaults__ = (5.0,)  # type: ignore[attr-defined]
    assert torch.equal(fast(X), X + 5)
    Made.__init__.__code__ = other.__code__  # type: ignore[attr-defined]
    assert torch.equal(fast(X), X + 6)


def test_classes_are_registered_with_abstract_ones(compiled: Callable[[Any], Any]) -> None:
    class Abstract(abc.ABC):  # noqa: B024
        pass

    class Made:
        pass

    made = Made()
    fast = compiled(lambda x: x + 1 if isinstance(made, Abstract) else x - 1)
    for _ in range(2):
        assert torch.equal(fast(X), X - 1)
    Abstract.register(Made)
    assert torch.equal(fast(X), X + 1)


def test_numbers_of_classes_change_without_compilation() -> None:
    class Made:
        calls = 0

        def g(self, x: Tensor) -> Tensor:
            return x + 1

    torch.compiler.reset()
    counters.clear()
    made, fast = Made(), torch.compile(lambda x: made.g(x), backend="hostjit")
    for _ in range(20):
        Made.calls += 1
        assert torch.equal(fast(X), X + 1)
    assert counters["stats"]["unique_graphs"] == 1


def test_classes_that_tracing_changes_are_not_compared() -> None:
    torch.compiler.reset()
    counters.clear()
    fast = torch.compile(lambda x: x + isinstance(x, FakeTensor), backend="hostjit")
    for _ in range(3):
        assert torch.equal(fast(X), X)
    assert counters["stats"]["unique_graphs"] == 1


def test_classes_go_with_their_modules() -> None:
    def made() -> list[Any]:
        class Made(nn.Module):
            @property
            def offset(self) -> float:
                return float(__class__ is Made)  # type: ignore[name-defined]

            def forward(self, x: Tensor) -> Tensor:
                return x + self.offset

        model = Made()
        fast = torch.compile(model, backend="hostjit")
        assert torch.equal(fast(X), X + 1)
        return [weakref.ref(Made), weakref.ref(model)]

    references = made()
    gc.collect()
    assert [reference() for reference in references] == [None, None]
