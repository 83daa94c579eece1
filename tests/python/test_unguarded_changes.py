# SPDX-License-Identifier: Apache-2.0
"""Changes that Dynamo leaves without a guard: of functions, classes, names and keys."""

from __future__ import annotations

import abc
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import pytest
import torch
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

Function = Callable[[Tensor], Tensor]
# Yields the function, and then something after each change.
Program = Callable[[], Iterator[Any]]


def check(program: Program, compile: Callable[[Any], Any] = hostjit.compile) -> Any:
    steps = program()
    eager = next(steps)
    fast = compile(eager)

    def result(function: Function) -> Any:
        try:
            return function(torch.ones(2)).tolist()
        except Exception as error:
            return type(error)

    while True:
        for _ in range(2):
            assert result(fast) == result(eager)
        if next(steps, check) is check:
            return fast


def name_of_a_function() -> Iterator[Any]:
    def helper() -> None: ...

    yield lambda x: x * len(helper.__name__)
    helper.__name__ = "longer name"
    yield
    helper.__name__ = "helper"
    yield


def text_of_a_function() -> Iterator[Any]:
    def helper() -> None:
        """Say."""

    yield lambda x: x * len(helper.__doc__ or "")
    helper.__doc__ = "Say more."
    yield
    helper.__doc__ = None
    yield


def module_of_a_function() -> Iterator[Any]:
    def helper() -> None: ...

    yield lambda x: x * len(helper.__module__)
    helper.__module__ = "another"
    yield


def annotations_of_a_function() -> Iterator[Any]:
    def helper(x: int) -> None: ...

    yield lambda x: x * len(helper.__annotations__)
    helper.__annotations__["y"] = int
    yield
    helper.__annotations__ = {}
    yield


def wrapped_function() -> Iterator[Any]:
    @functools.wraps(torch.neg)
    def helper(x: Tensor) -> Tensor:
        return x

    yield lambda x: helper.__wrapped__(x)
    helper.__wrapped__ = torch.exp
    yield


def attributes_of_a_function() -> Iterator[Any]:
    def helper() -> None: ...

    def step(x: Tensor) -> Tensor:
        for value in vars(helper).values():
            x = x * value
        return x * len(vars(helper)) + helper.__dict__.get("first", 5)

    helper.first = 2
    yield step
    helper.second = 3
    yield
    del helper.first
    yield
    helper.__dict__ = {"first": 7}
    yield


def attributes_of_a_method() -> Iterator[Any]:
    class Holder:
        def method(self) -> None:
            """Say."""

    held = Holder()
    Holder.method.gain = 2  # type: ignore[attr-defined]
    yield lambda x: x * held.method.gain * len(held.method.__doc__ + held.method.__name__)
    Holder.method.gain = 3  # type: ignore[attr-defined]
    yield
    Holder.method.__name__ = "longer name"
    yield
    Holder.method.__doc__ = ""
    yield


def parameters_of_a_function() -> Iterator[Any]:
    def helper(x: Tensor, gain: int) -> Tensor:
        return x * gain

    yield lambda x: helper(x, 2)
    helper.__code__ = (lambda left, right: left - right).__code__
    yield


def attributes_of_a_partial() -> Iterator[Any]:
    partial = functools.partial(torch.mul, other=2)
    yield lambda x: partial(x) * (hasattr(partial, "gain") + 1) * getattr(partial, "gain", 7)
    partial.gain = 5
    yield
    partial.gain = 6
    yield
    del partial.gain
    yield


def function_of_a_partial() -> Iterator[Any]:
    partial = functools.partial(torch.mul, other=2)
    yield lambda x: partial(x)
    partial.__setstate__((torch.add, (), {"other": 3}, {}))
    yield


PROGRAMS: dict[str, Program] = {
    function.__name__: function
    for function in (
        *(name_of_a_function, text_of_a_function, module_of_a_function),
        *(annotations_of_a_function, wrapped_function, attributes_of_a_function),
        *(attributes_of_a_method, parameters_of_a_function),
        *(attributes_of_a_partial, function_of_a_partial),
    )
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_that_change(name: str) -> None:
    check(PROGRAMS[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_that_change_are_compiled(name: str) -> None:
    if name == "attributes_of_a_function" and torch.__version__ < (2, 12):
        pytest.skip("Dynamo does not follow the values of a function's dict: it runs in parts")
    check(PROGRAMS[name], functools.partial(hostjit.compile, fallback=False))


class Plain:
    pass


def length(value: Any) -> int:
    try:
        return len(value)
    except TypeError:
        return 7


def contains(value: Any) -> int:
    try:
        return 2 if 5 in value else 3
    except TypeError:
        return 7


def attribute(value: Any) -> int:
    try:
        return value.absent
    except AttributeError:
        return 7


def item(value: Any) -> int:
    try:
        return value["key"]
    except (TypeError, KeyError):
        return 7


def added(value: Any) -> int:
    try:
        return value + 1
    except TypeError:
        return 7


# The name of the method, the method, and how it is asked.
METHODS: list[tuple[str, Any, Callable[[Any], Any]]] = [
    ("__bool__", lambda self: False, lambda value: 2 if value else 3),
    ("__len__", lambda self: 0, lambda value: 2 if value else 3),
    ("__len__", lambda self: 4, length),
    ("__eq__", lambda self, other: True, lambda value: 2 if value == 5 else 3),
    ("__contains__", lambda self, key: True, contains),
    ("__getattr__", lambda self, name: 4, attribute),
    ("__getitem__", lambda self, key: 4, item),
    ("__add__", lambda self, other: 4, added),
    ("__call__", lambda self: 4, lambda value: 2 if callable(value) else 3),
]


def gaining(kind: Any, holder: Any, name: str, method: Any, ask: Any) -> Iterator[Any]:
    yield lambda x: x * ask(holder)
    setattr(kind, name, method)
    yield
    delattr(kind, name)
    yield


@pytest.mark.parametrize("base", [object, nn.Module])
@pytest.mark.parametrize("number", range(len(METHODS)))
def test_classes_that_gain_methods(base: type, number: int) -> None:
    kind = type("Made", (base,), {})
    if base is not nn.Module or METHODS[number][0] not in ("__call__", "__getattr__"):
        check(lambda: gaining(kind, kind(), *METHODS[number]))


@pytest.mark.parametrize("number", range(len(METHODS) - 1))
def test_metaclasses_that_gain_methods(number: int) -> None:
    meta = type("Meta", (type,), {"__hash__": type.__hash__})
    check(lambda: gaining(meta, meta("Made", (), {}), *METHODS[number]))


@pytest.mark.parametrize(
    ("base", "name", "method", "ask"),
    [
        (dict, "__missing__", lambda self, key: 4, item),
        (dict, "__contains__", lambda self, key: True, contains),
        (list, "__bool__", lambda self: True, lambda value: 2 if value else 3),
        (tuple, "__len__", lambda self: 4, len),
    ],
)
def test_classes_of_containers_that_gain_methods(
    base: type, name: str, method: Any, ask: Any
) -> None:
    kind = type("Made", (base,), {})
    check(lambda: gaining(kind, kind(), name, method, ask))


@pytest.mark.parametrize("number", range(len(METHODS)))
def test_classes_of_arguments_that_gain_methods(number: int) -> None:
    kind = type("Made", (), {})
    name, method, ask = METHODS[number]
    fast = hostjit.compile(lambda x, value: x * ask(value))
    for has in (False, True, False):
        if has:
            setattr(kind, name, method)
        elif name in vars(kind):
            delattr(kind, name)
        for _ in range(3):
            value = kind()
            assert fast(torch.ones(1), value).item() == ask(value)


class Truthy:
    gain = 2


class Falsy:
    gain = 3

    def __bool__(self) -> bool:
        return False


@pytest.mark.parametrize(
    "ask",
    [
        lambda value: value.gain,
        lambda value: 2 if value else 3,
        lambda value: 2 if isinstance(value, Truthy) else 3,
        lambda value: len(type(value).__bases__[0].__name__),
    ],
)
def test_bases_that_change(ask: Callable[[Any], Any]) -> None:
    class Made(Truthy):
        pass

    def program() -> Iterator[Any]:
        held = Made()
        yield lambda x: x * ask(held)
        Made.__bases__ = (Falsy,)
        yield
        Made.__bases__ = (Truthy,)
        yield

    check(program)


class Checking(type):
    answer: ClassVar[bool] = True

    def __instancecheck__(cls, value: Any) -> bool:
        return Checking.answer

    def __subclasscheck__(cls, value: Any) -> bool:
        return Checking.answer


class Checked(metaclass=Checking):
    pass


@pytest.mark.parametrize("ask", [lambda: isinstance(4, Checked), lambda: issubclass(int, Checked)])
def test_checks_of_metaclasses(ask: Callable[[], bool]) -> None:
    def program() -> Iterator[Any]:
        yield lambda x: x * (2 if ask() else 3)
        for answer in (False, True):
            Checking.answer = answer
            yield

    check(program)


@pytest.mark.parametrize("ask", [lambda: isinstance(4, Checked), lambda: issubclass(int, Checked)])
def test_checks_of_metaclasses_after_other_backends(ask: Callable[[], bool]) -> None:
    torch.compile(lambda x: x * (2 if ask() else 3), backend="eager")(torch.ones(2))
    test_checks_of_metaclasses(ask)


def by_name(x: Tensor) -> Tensor:
    import of_this_test

    return of_this_test.function(x) * of_this_test.gain


def by_parts(x: Tensor) -> Tensor:
    from of_this_test import function, gain

    return function(x) * gain


@pytest.mark.parametrize("step", [by_name, by_parts])
@pytest.mark.parametrize("after_another_backend", [False, True])
def test_modules_that_others_take_the_name_of(
    step: Function, after_another_backend: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use(gain: int, function: Function) -> types.ModuleType:
        module = types.ModuleType("of_this_test")
        vars(module).update(gain=gain, function=function)
        monkeypatch.setitem(sys.modules, "of_this_test", module)
        return module

    def program() -> Iterator[Any]:
        first = use(2, torch.sin)
        yield step
        use(3, torch.cos)
        yield
        monkeypatch.setitem(sys.modules, "of_this_test", first)
        yield
        vars(first)["gain"] = 4
        yield
        monkeypatch.delitem(sys.modules, "of_this_test")
        yield

    if after_another_backend:
        # Dynamo keeps a module there, and refuses another of its name.
        globals().pop("__import_of_this_test", None)
        use(7, torch.exp)
        torch.compile(step, backend="eager")(torch.ones(2))
    check(program)


class Abstract(abc.ABC):  # noqa: B024
    pass


@runtime_checkable
class Runner(Protocol):
    def run(self) -> None: ...


def test_registered_classes() -> None:
    def program() -> Iterator[Any]:
        kind = type("Made", (), {})
        held = kind()
        yield lambda x: x * (2 if isinstance(held, Abstract) else 3) + issubclass(kind, Abstract)
        Abstract.register(kind)
        yield

    for _ in range(2):
        check(program)


def test_registered_classes_in_frames_below_a_call() -> None:
    def below(x: Tensor, kind: type) -> Tensor:
        return x * (2 if issubclass(kind, Abstract) else 3)

    def in_a_try(x: Tensor, kind: type) -> Tensor:
        try:
            torch._dynamo.graph_break()
            return below(x, kind)
        finally:
            pass

    def program() -> Iterator[Any]:
        kind = type("Made", (), {})
        yield lambda x: in_a_try(x, kind) + 1
        Abstract.register(kind)
        yield

    for _ in range(2):
        check(program)


def test_protocols_of_objects() -> None:
    def program() -> Iterator[Any]:
        held = Plain()
        yield lambda x: x * (2 if isinstance(held, Runner) else 3)
        held.run = len  # type: ignore[attr-defined]
        yield
        del held.run  # type: ignore[attr-defined]
        yield

    check(program)


def test_dicts_of_objects_that_are_replaced() -> None:
    def program() -> Iterator[Any]:
        held = Plain()
        yield lambda x: x * len(vars(held)) + held.__dict__.get("first", 5)
        held.first = 1  # type: ignore[attr-defined]
        yield
        held.__dict__ = {"first": 2, "second": 3}
        yield

    check(program)


class Storing:
    def __init__(self) -> None:
        self.stored = {"gain": 2}

    def __getattr__(self, name: str) -> int:
        return self.stored[name]


def test_attributes_that_hide_made_ones() -> None:
    def program() -> Iterator[Any]:
        held = Storing()
        yield lambda x: x * held.gain
        held.stored["gain"] = 3
        yield
        held.gain = 4
        yield
        del held.gain
        yield

    check(program)


def test_methods_of_named_tuples() -> None:
    class Pair(NamedTuple):
        first: int

        def gain(self) -> int:
            return self.first

    fast = hostjit.compile(lambda x, pair: x * pair.gain())
    assert fast(torch.ones(1), Pair(2)).item() == 2
    Pair.gain = lambda self: 7  # type: ignore[method-assign]
    assert fast(torch.ones(1), Pair(2)).item() == 7


def other_length(value: Any) -> int:
    return 11


def of_own_names(names: dict[str, Any]) -> Function:
    """Return a function with these globals."""

    def function(x: Tensor) -> Tensor:
        return x * len(x) + abs(-2)

    names["__builtins__"] = __builtins__
    return types.FunctionType(function.__code__, names)  # type: ignore[return-value]


def test_names_that_hide_builtins() -> None:
    names: dict[str, Any] = {}
    inner = of_own_names(names)

    def program(function: Function) -> Iterator[Any]:
        yield function
        names["len"] = other_length
        yield
        names["abs"] = other_length
        yield
        del names["len"], names["abs"]
        yield

    check(lambda: program(inner))
    check(lambda: program(lambda x: inner(x) + 1))


def looked_up(found: Any) -> list[Function]:
    table, names = {found[0]: 2}, {found[0]}
    current = types.SimpleNamespace(kind=found[0])

    return [
        lambda x: x * table.get(current.kind, 3),
        lambda x: x * (2 if current.kind in table else 3),
        lambda x: x * (2 if current.kind in names else 3),
        lambda x: x * {found[0]: 2}.get(current.kind, 3),
        lambda x: x * len({current.kind: 1, found[0]: 2}),
        current,  # type: ignore[list-item]
    ]


@pytest.mark.parametrize(
    "found", [(Truthy, Falsy), (check, length), (len, max), (torch.add, torch.sub), (int, float)]
)
@pytest.mark.parametrize("number", range(5))
def test_keys_that_are_functions_and_classes(found: tuple[Any, Any], number: int) -> None:
    *functions, current = looked_up(found)

    def program() -> Iterator[Any]:
        yield functions[number]
        for kind in (found[1], found[0], found[1]):
            current.kind = kind
            yield

    check(program)


@pytest.mark.parametrize("through", ["cell", "attribute"])
def test_classes_in_closures(through: str) -> None:
    kind: Any = Truthy
    held = types.SimpleNamespace(kind=Truthy)

    def step(x: Tensor) -> Tensor:
        found = kind if through == "cell" else held.kind
        return x * (2 if found is Truthy else 3) + isinstance(x, found)

    def program() -> Iterator[Any]:
        nonlocal kind
        yield step
        for kind in (Falsy, Truthy, Tensor):
            held.kind = kind
            yield

    check(program)
