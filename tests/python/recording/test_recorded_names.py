# SPDX-License-Identifier: Apache-2.0
"""Recordings of code that asks a dict of globals for names, and what named tuples are made of."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import hostjit
from hostjit.recording.code.names import names_of, reaches_any

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

SOURCE = """
def computed():
    return "".join(("la", "ter"))

def by_get(x):
    return x * globals().get("later", 2.0)

def by_computed_name(x):
    return x * globals().get(computed(), 2.0)

def by_membership(x):
    return x * (3.0 if computed() in globals() else 2.0)

def by_count(x):
    return x * len([name for name in globals() if name[:2] != "__"])

def by_name(x):
    try:
        return x * later
    except NameError:
        return x * 2

def by_kept_dict(x):
    return x * variables.get("later", 2.0)

def by_computed_name_in_kept_dict(x):
    return x * variables.get(computed(), 2.0)

def by_module(x):
    return x * getattr(module, computed(), 2.0)
"""
NAMES = [line[4:].partition("(")[0] for line in SOURCE.splitlines() if line[:6] == "def by"]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_appear(name: str) -> None:
    module = types.ModuleType("of_this_test")
    variables = vars(module)
    variables.update(variables=variables, module=module)
    exec(SOURCE, variables)
    function: Callable[[Tensor], Tensor] = variables[name]
    fast = hostjit.capture(function)
    for value in (None, 5.0, 6.0, None, 5.0):
        if value is not None:
            variables["later"] = value
        else:
            variables.pop("later", None)
        for _ in range(3):
            assert torch.equal(fast(torch.ones(2)), function(torch.ones(2)))


Pair = collections.namedtuple("Pair", "first second", defaults=(2.0, 3.0))


class Row(NamedTuple):
    first: float = 2.0
    second: float = 3.0


def helper(self: Any, gain: float = 2.0) -> float:
    return gain


class Calling:
    __call__ = helper
    gain = property(helper)


@pytest.mark.parametrize(
    ("function", "owner"),
    [
        (lambda x: x * Pair().first, Pair.__new__),
        (lambda x: x * Pair(1.0).second, Pair.__new__),
        (lambda x: x * Pair()._replace(second=1.0).first, Pair.__new__),
        (lambda x: x * Row().first, Row.__new__),
        (lambda x: x * Calling()(), helper),
        (lambda x: x * Calling().gain, helper),
    ],
)
@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
def test_defaults_of_functions_that_classes_call(
    function: Callable[[Tensor], Tensor],
    owner: Any,
    compile: Callable[[Any], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def defaults() -> Iterator[Any]:
        before = owner.__defaults__
        yield before
        yield tuple(value + 5 for value in before)
        yield before

    fast = compile(function)
    for found in defaults():
        monkeypatch.setattr(owner, "__defaults__", found)
        for _ in range(3):
            assert torch.equal(fast(torch.ones(2)), function(torch.ones(2)))


def test_names_that_come_up_while_all_are_looked_at() -> None:
    """Code that asks for any attribute, beside what brings more names: it was a RuntimeError."""

    class Model(torch.nn.Module):
        by_loss = operator.attrgetter("loss_that_nothing_names")
        by_rate = operator.attrgetter("rate_that_nothing_names")
        by_rank = operator.methodcaller("rank_that_nothing_names")
        show = "loss {:.3f}".format
        look = staticmethod(getattr)
        text = "rate {:.3f}".format

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(4))

        def describe(self) -> Any:
            return self.by_loss, self.by_rate, self.by_rank, self.show, self.look, self.text

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: Tensor) -> Tensor:
        if len(x) > 10:
            print(model.describe(), model.by_loss, model.by_rate, model.by_rank)
            print(model.show, model.look, model.text)
        loss = (model.weight - x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    fast = hostjit.capture(step)
    weight = torch.zeros(4)
    for i in range(4):
        expected = (weight - i).square().sum()
        weight = weight - 0.2 * (weight - i)
        torch.testing.assert_close(fast(torch.full((4,), float(i))), expected)
        torch.testing.assert_close(model.weight.detach(), weight)


def test_a_literal_reaches_the_attributes_that_it_names() -> None:
    assert not reaches_any((lambda x: "{0.a}, {1:>{2}}".format(*x)).__code__)
    assert not reaches_any((lambda x: "{a}".format_map(x)).__code__)
    assert {"a", "b"} <= names_of((lambda x: "{0.a:>{1.b}}".format(*x)).__code__)
    assert reaches_any((lambda x: x.format(x)).__code__)
    assert reaches_any((lambda x: (x, "{}".format(x), x.format)).__code__)  # noqa: UP032
    assert reaches_any((lambda x: format(x, "{}")).__code__)
    assert not reaches_any((lambda x: getattr(x, "a")).__code__)  # noqa: B009
    assert not reaches_any((lambda x, name: getattr(x, name)).__code__)
    assert reaches_any((lambda x: map(getattr, x, "a")).__code__)


class Named:
    """Reaches attributes by names in variables, computed ones, and those of keywords."""

    names = ("left", "right")

    def __init__(self) -> None:
        self.left, self.right, self.other, self.kind = 1.0, 2.0, 3.0, "right"

    def by_loop(self, x: Tensor) -> Tensor:
        for name in self.names:
            if hasattr(self, name):
                x = x * getattr(self, name)
        return x

    def by_default(self, x: Tensor) -> Tensor:
        kind = self.kind
        return x * getattr(self, kind, 0.5)

    def by_global(self, x: Tensor) -> Tensor:
        return x * getattr(self, KIND)

    def by_constant(self, x: Tensor) -> Tensor:
        return x * getattr(self, "right")  # noqa: B009

    def by_text(self, x: Tensor) -> Tensor:
        return x * getattr(self, f"ri{'ght'}")

    def by_arguments(self, x: Tensor) -> Tensor:
        given = (self, "right")
        return x * getattr(*given)

    def by_closure(self, x: Tensor) -> Tensor:
        kind = self.kind
        return x * (lambda: getattr(self, kind))()

    def by_assigning(self, x: Tensor) -> Tensor:
        for name in ("left", "right"):
            setattr(self, name, 2.0)
        return x * self.left * self.right


KIND = "right"


@pytest.mark.parametrize("method", [name for name in vars(Named) if name.startswith("by_")])
def test_names_that_code_computes(method: str) -> None:
    plain, recorded = Named(), Named()
    fast = hostjit.capture(getattr(recorded, method))
    for index in range(12):
        value = float(index // 4)
        plain.right = recorded.right = value
        plain.other = recorded.other = float(index)
        x = torch.full((2,), 1.0 + index)
        torch.testing.assert_close(fast(x), getattr(plain, method)(x))
        assert vars(recorded) == vars(plain)


def test_what_no_name_of_the_code_reaches_may_be_anything() -> None:
    recorded = Named()
    fast = hostjit.capture(recorded.by_loop)
    x = torch.ones(2)
    for index in range(10):
        recorded.other = float(index)
        fast(x)
    assert len(fast.specializations) == 1


def test_equal_code_of_two_files(tmp_path: Path) -> None:
    """Code is equal where names, constants and lines are: not where its globals are."""
    text = "VALUE = 1.0\n\ndef scaled(x):\n    return x * VALUE\n"
    modules = []
    for name in ("first", "second"):
        path = tmp_path / f"equal_code_{name}.py"
        path.write_text(text)
        module = types.ModuleType(path.stem)
        exec(compile(text, str(path), "exec"), vars(module))
        modules.append(module)
    first, second = modules

    @hostjit.capture
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return first.scaled(x), second.scaled(x)

    x = torch.ones(2)
    for value in (1.0, 1.0, 1.0, 2.0, 3.0, 1.0):
        second.VALUE = value  # type: ignore[attr-defined]
        torch.testing.assert_close(program(x), (x, value * x))
