# SPDX-License-Identifier: Apache-2.0
"""`types.SimpleNamespace`: made, changed and replaced by a call, as objects of other classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import hostjit

held: Any = SimpleNamespace()


class Derived(SimpleNamespace):
    factor = 3

    def scaled(self) -> Any:
        return self.value * self.factor


class Counting(SimpleNamespace):
    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value * 2)


class OnlyNew(SimpleNamespace):
    def __init__(self, value: Any, **rest: Any) -> None:
        super().__init__(value=value, **rest)
        self.next = value + 1


counting = Counting()


def sets_numbers(x: Tensor) -> Any:
    held.count += 1
    held.rate *= 0.5
    return x * held.rate + held.count


def sets_a_tensor(x: Tensor) -> Any:
    held.hidden = torch.tanh(held.hidden + x)
    held.count += 1
    return held.hidden * 1


def adds_and_deletes(x: Tensor) -> Any:
    held.new = x + 1
    result = held.new * 2
    del held.new
    return result, hasattr(held, "new")


def by_name(x: Tensor) -> Any:
    setattr(held, "name", x)  # noqa: B010
    return getattr(held, "name") + len(vars(held))  # noqa: B009


def replaces(x: Tensor) -> Any:
    global held
    hidden = torch.tanh(held.hidden + x) * held.rate
    held = SimpleNamespace(hidden=hidden, count=held.count + 1, rate=held.rate * 0.9)
    return held.hidden * 1, held.count


def makes(x: Tensor) -> Any:
    made = SimpleNamespace(a=x * 2, b=3)
    made.c = made.a + made.b
    other = SimpleNamespace(**vars(made))
    other.c = other.c + 1
    return made.c, other.c, hasattr(made, "d"), getattr(made, "d", 4), sorted(vars(other))


def nests(x: Tensor) -> Any:
    made = SimpleNamespace(x=x, inner=SimpleNamespace(items=[x, 2]))
    made.inner.items.append(3)
    return made


def keeps(x: Tensor) -> Any:
    held.last = SimpleNamespace(x=x + 1)
    return held.last.x * 2


def misses(x: Tensor) -> Any:
    made = SimpleNamespace(x=x)
    del made.x
    try:
        return made.x
    except AttributeError:
        return x + 5


def asks_the_dict(x: Tensor) -> Any:
    made = SimpleNamespace(x=x)
    made.__dict__["y"] = 1
    made.__dict__.update(z=2)
    return made.y + made.z + made.x


def of_a_derived_class(x: Tensor) -> Any:
    counting.value = x
    return counting.value + 1


def compares(x: Tensor) -> Any:
    return x + (SimpleNamespace(k=1) == SimpleNamespace(k=1)), SimpleNamespace(k=1) != held


def shows(x: Tensor) -> Any:
    return x * 2, repr(SimpleNamespace(k=1))


def makes_derived(x: Tensor) -> Any:
    other = Counting()
    other.value = x
    made = OnlyNew(x, more=2)
    return Derived(value=x).scaled(), other.value, made.next + made.more


def makes_of_too_much(x: Tensor) -> Any:
    return x, SimpleNamespace(1, 2)  # type: ignore[call-arg]


COMPILED: list[Callable[[Tensor], Any]] = [
    *(sets_numbers, sets_a_tensor, adds_and_deletes, by_name, replaces, makes, nests, keeps),
    *(misses, asks_the_dict, of_a_derived_class),
]
# What Dynamo of older torch does not follow, of objects of any class.
LATER = (by_name, makes, misses, asks_the_dict) if torch.__version__ < (2, 12) else ()


def results(function: Callable[[Tensor], Any], calls: int = 8) -> list[Any]:
    """Call it with `held` as at the start; return what it gives and leaves, or how it raises."""
    global held
    held = SimpleNamespace(count=0, rate=1.0, hidden=torch.zeros(3))
    found = []
    try:
        for call in range(calls):
            result = function(torch.full((3,), 0.1 * call))
            # That of `repr` shows what is in namespaces, and in which order.
            found.append([repr(leaf) for leaf in (*tree_leaves(result), held, counting)])
    except TypeError as error:
        found.append([str(error)])
    return found


@pytest.mark.parametrize("function", COMPILED)
@pytest.mark.parametrize("compile", ["hostjit", "torch"])
def test_they_are_compiled(function: Callable[[Tensor], Any], compile: str) -> None:
    expected, is_whole = results(function), function not in LATER
    with warnings.catch_warnings():
        warnings.simplefilter("error" if is_whole else "ignore")
        if compile == "hostjit":
            compiled: Any = hostjit.compile(function, fallback=not is_whole)
        else:
            compiled = torch.compile(function, backend="hostjit", fullgraph=is_whole)
        assert results(compiled) == expected


@pytest.mark.parametrize("function", [compares, shows, makes_derived, makes_of_too_much])
def test_what_else_can_be_done_with_them(function: Callable[[Tensor], Any]) -> None:
    expected = results(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert results(hostjit.compile(function)) == expected


def test_a_new_one_at_each_call_has_one_program_for_any_numbers() -> None:
    compiled = hostjit.compile(replaces, fallback=False)
    results(compiled, calls=20)
    assert len(compiled.specializations) <= 3
