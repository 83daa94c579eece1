# SPDX-License-Identifier: Apache-2.0
"""Statements that choose, in code that can tell what it has from what was selected."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

WAYS = (torch.tensor([2.0, 1.0]), torch.tensor([-1.0, -2.0]), torch.tensor([3.0, 4.0]))


def check(function: Callable[..., Any], expected: Callable[..., Any] | None = None) -> None:
    """Compare with eager mode: results, and what is seen in the arguments."""
    recorded = hostjit.capture(function)
    for number in range(9):
        given, beside = WAYS[number % 3].clone(), WAYS[number % 3].clone()
        found, wanted = recorded(given), (expected or function)(beside)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(given, beside)
        assert (found is given) == (wanted is beside)
        assert vars(given) == vars(beside)


def same(a: object, b: object) -> bool:
    return a is b


def identity(a: object) -> int:
    return id(a)


def by_helper(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x * 2
    r = x * 1
    if same(y, x):
        r = r + 100
    return r


def by_id(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x * 2
    return x + 100 if identity(y) == identity(x) else x * 3


def by_text(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x * 2
    return x + 100 if getattr(operator, "is_")(y, x) else x * 3  # noqa: B009


def by_operator(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x * 2
    return x + 100 if operator.is_(y, x) else x * 3


def by_dict(x: Tensor) -> Tensor:
    g, h = x.sin(), x * 3
    ages = {g: 1.0, h: 2.0}
    y = g
    if x.sum() > 0:
        y = h
    return x * ages[y]


def by_gradient(x: Tensor) -> Tensor:
    y, z = x * 1, x * 2
    w = y
    if x.sum() > 0:
        w = z
    w.requires_grad_()
    (w * y).sum().backward()
    return torch.stack([torch.zeros(2) if t.grad is None else t.grad for t in (y, z)])


def by_gradient_of_the_other(x: Tensor) -> Tensor:
    y, z = x * 1, x * 2
    given = x.clone()
    w = given
    if x.sum() > 0:
        w = z
    given.requires_grad_()
    (w * given + y).sum().backward()
    assert given.grad is not None
    return given.grad


def by_data(x: Tensor) -> Tensor:
    y, z = x * 1, x * 2
    w = y
    if x.sum() > 0:
        w = z
    w.data = x * 5
    return y + z


def by_mark(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x * 2
    y.mark = 1  # type: ignore[attr-defined]
    return x * 1


def by_set(x: Tensor) -> Tensor:
    y, z = x * 1, x * 2
    w = y
    if x.sum() > 0:
        w = z
    return x * len(set([w, y]))  # noqa: C405


def by_default(
    x: Tensor, same: Callable[[Any, Any], bool] = lambda one, other: one is other
) -> Tensor:
    y, z = x * 1, x * 2
    w = y
    if x.sum() > 0:
        w = z
    return x * (2 if same(w, z) else 3)


SAME = {"same": lambda one, other: one is other}


def by_table(x: Tensor) -> Tensor:
    y, z = x * 1, x * 2
    w = y
    if x.sum() > 0:
        w = z
    return x * (2 if SAME["same"](w, z) else 3)


@pytest.mark.parametrize(
    "function",
    [
        by_set,
        by_default,
        by_table,
        by_helper,
        by_id,
        by_text,
        by_operator,
        by_dict,
        by_gradient,
        by_gradient_of_the_other,
        by_data,
        by_mark,
    ],
)
def test_code_that_tells_tensors_apart(function: Callable[[Tensor], Tensor]) -> None:
    check(function)


@dataclasses.dataclass
class Box:
    value: Tensor


class Kept:
    def __init__(self) -> None:
        self.items: list[Any] = [torch.zeros(2)]
        self.boxes: list[Box] = []

    def replaced(self, x: Tensor) -> list[Any]:
        v = self.items[0] * 0.5 + x
        if v.norm() > 1:
            v = v / v.norm()
        self.items[0] = v
        return self.items

    def logged(self, x: Tensor) -> Tensor:
        y = x
        if x.sum() > 5:
            y = x * 2
        self.items.append((y, [y, 0.5]))
        self.boxes.append(Box(y))
        return x * 1


def test_lists_that_are_returned() -> None:
    ours, eager = Kept(), Kept()
    recorded = hostjit.capture(ours.replaced)
    for number in range(6):
        found, expected = recorded(WAYS[number % 3]), eager.replaced(WAYS[number % 3])
        assert found is ours.items
        torch.testing.assert_close(found, expected)


def test_what_a_recorded_call_leaves_is_its_own() -> None:
    ours = Kept()
    recorded = hostjit.capture(ours.logged)
    for number in range(4):
        x = WAYS[number % 2].clone()
        recorded(x)
        (first, (second, _)), box = ours.items[-1], ours.boxes[-1]
        assert first is x and second is x and box.value is x


def test_lists_that_are_given() -> None:
    def function(x: Tensor, items: list[Tensor]) -> list[Tensor]:
        y = x.sin()
        if x.sum() > 5:
            y = x * 2
        items.append(y)
        return items

    recorded = hostjit.capture(function)
    for number in range(6):
        items: list[Tensor] = []
        assert recorded(WAYS[number % 3], items) is items
        torch.testing.assert_close(items, function(WAYS[number % 3], []))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, y: Tensor) -> Tensor:
        self.calls += 1
        return y * 2


class Acting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Counting()

    def act(self, x: Tensor) -> Tensor:
        y = x.sin()
        if x.sum() > 0:
            y = self.inner(y)
        return y


def test_modules_of_the_way_that_is_not_taken() -> None:
    module = Acting()
    recorded = hostjit.capture(module.act)
    for _ in range(4):
        recorded(WAYS[1])
    assert module.inner.calls == 0


class Lazy:
    def __init__(self) -> None:
        self.__dict__["asked"] = 0

    def __getattr__(self, name: str) -> float:
        if name.startswith("_"):
            raise AttributeError(name)
        self.__dict__["asked"] += 1
        return 2.0


def test_attributes_that_code_makes() -> None:
    lazy = Lazy()

    def function(x: Tensor) -> Tensor:
        y = x.sin()
        if x.sum() > 0:
            y = y * lazy.gain
        return y

    recorded = hostjit.capture(function)
    for _ in range(4):
        recorded(WAYS[1])
    assert lazy.__dict__["asked"] == 0


class Settings(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self.get(name)


class Limit:
    def __init__(self, value: float) -> None:
        self.__dict__["value"] = value

    def __getattr__(self, name: str) -> Any:
        return lambda *_: True

    def __gt__(self, other: float) -> bool:
        return bool(self.value > other)


FIRST, SECOND, LIMIT = Settings(mode="a"), Settings(mode="a"), Limit(0.5)


def test_objects_that_have_whatever_is_asked_for() -> None:
    def function(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * 2
        if FIRST == SECOND:
            x = x + 1
        if LIMIT > 1.0:
            x = x + 100
        return x

    check(function)


class Modes:
    mode: Any = None

    def pair(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            a, z = 1, 1
        else:
            a, z = 2, 2
        self.mode = z
        return x * a

    def items(self, x: Tensor) -> Tensor:
        p = (1, 2)
        if x.sum() > 0:
            p = (3, 4)
        self.mode = (*p, 5)
        q = p + (5,)  # noqa: RUF005
        for _ in range(q[0]):
            x = x + 1
        return x


@pytest.mark.parametrize("name", ["pair", "items"])
@pytest.mark.parametrize("through", [hostjit.capture, hostjit.compile])
def test_numbers_that_others_see(through: Callable[..., Any], name: str) -> None:
    ours, eager = Modes(), Modes()
    called = through(getattr(ours, name))
    for number in range(9):
        x = WAYS[number % 3]
        torch.testing.assert_close(called(x), getattr(eager, name)(x))
        assert repr(ours.mode) == repr(eager.mode)
        assert type(ours.mode) is type(eager.mode)


def test_small_ints_are_one_object() -> None:
    def function(x: Tensor, n: int) -> Tensor:
        m = int((x > 0).sum().item())
        return x * 2 if n is m else x * 1

    recorded = hostjit.capture(function)
    for x in WAYS * 2:
        torch.testing.assert_close(recorded(x, 2), function(x, 2))


def test_numbers_for_c_code() -> None:
    def function(x: Tensor) -> tuple[Tensor, str, float]:
        k = (x > 0).sum().item()
        return x * 2, "%x" % k, round(2.34567, int(k))  # noqa: UP031

    recorded = hostjit.capture(function)
    for x in WAYS * 2:
        assert recorded(x)[1:] == function(x)[1:]


def by_default(x: Tensor, gain: float = 1.0, *, shift: float = 0.0) -> Tensor:
    y = x.sin()
    if y.sum() > 0:
        y = y * gain
    return y + shift


def other(x: Tensor, gain: float = 1.0, *, shift: float = 0.0) -> Tensor:
    y = x.cos()
    if y.sum() > 0:
        y = y * gain * 2
    return y + shift


@pytest.mark.parametrize("through", [hostjit.capture, hostjit.compile])
def test_defaults_and_code_that_change(
    through: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = through(by_default)
    for number in range(12):
        if number == 3:
            monkeypatch.setattr(by_default, "__defaults__", (10.0,))
        if number == 6:
            monkeypatch.setattr(by_default, "__kwdefaults__", {"shift": 1.0})
        if number == 9:
            monkeypatch.setattr(by_default, "__code__", other.__code__)
        x = WAYS[number % 3]
        torch.testing.assert_close(called(x), by_default(x))


def passes(x: Tensor, k: float = 1.0, *, limit: float = 0.5) -> tuple[Tensor, int]:
    n, y = 0, x
    while y.norm() > limit and n < 50:
        y = y * 0.9 * k
        n += 1
        if y.sum() > 3:
            y = y - 1
    return y, n


def test_defaults_of_functions_that_run_pass_by_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    called = hostjit.compile(passes)
    for number in range(45):
        if number == 25:
            monkeypatch.setattr(passes, "__defaults__", (0.5,))
        if number == 35:
            monkeypatch.setitem(passes.__kwdefaults__, "limit", 0.3)
        x = (
            torch.randn(4, generator=torch.Generator().manual_seed(number))
            * (1, 0.2, 3)[number % 3]
        )
        found, expected = called(x), passes(x)
        assert found[1] == expected[1]
        torch.testing.assert_close(found[0], expected[0])


LOG: list[Any] = []


def note(rate: float) -> None:
    """Is another function later."""


def noted(x: Tensor, rate: float) -> Tensor:
    u = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(u.square().sum(), u)
    note(rate)
    return g * rate


def test_a_function_that_becomes_one_of_c(monkeypatch: pytest.MonkeyPatch) -> None:
    called = hostjit.compile(noted)
    for number in range(12):
        if number == 8:
            monkeypatch.setitem(globals(), "note", LOG.append)
        called(WAYS[0], 0.1 * number)
    assert [type(value) for value in LOG] == [float] * 4


class Filter:
    def __init__(self) -> None:
        self.x, self.y = torch.zeros(2), torch.zeros(3)

    def update(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y = self.x * 0.9, self.y + 1
        v = z - x[0]
        if v * v < 3.0:
            x = x + v
        self.x, self.y = x, y
        return y[1:], x[0], z * 2


def test_views_of_what_is_stored() -> None:
    ours, eager = Filter(), Filter()
    recorded = hostjit.capture(ours.update, fallback=False)
    for number in range(12):
        z = torch.tensor(3.0 * (number % 3))
        found, expected = recorded(z), eager.update(z)
        torch.testing.assert_close(found, expected)
        found[1].add_(1)
        expected[1].add_(1)
        torch.testing.assert_close((ours.x, ours.y), (eager.x, eager.y))


def test_attributes_that_are_given_to_arguments() -> None:
    def function(x: Tensor) -> Tensor:
        x.mark = 1  # type: ignore[attr-defined]
        return x * 1

    check(function)


def test_a_new_tensor_that_needs_a_gradient_is_nobodys() -> None:
    """Of all calls there is one recording, which chooses."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        u = x.detach().requires_grad_(True)
        loss = u.square().sum()
        (gradient,) = torch.autograd.grad(loss, u)
        best = x * 1
        if loss.detach() > 6:
            best = x * 2
        return best, gradient * 3

    recorded = hostjit.capture(function)
    for number in range(9):
        x = WAYS[number % 3].clone()
        torch.testing.assert_close(recorded(x), function(x))
    assert len(recorded.specializations) == 1


def test_a_partial_of_what_is_selected() -> None:
    @hostjit.capture
    def program(x: Tensor) -> Any:
        y = x * 1
        if x.sum() > 0:
            y = x * 2
        return functools.partial(torch.add, y)

    for scale in (1.0, 1.0, -1.0, 2.0):
        x = scale * torch.ones(2)
        torch.testing.assert_close(program(x)(1.0), x * (2 if scale > 0 else 1) + 1)


class KeepingError(Exception):
    def __init__(self, y: Tensor) -> None:
        super().__init__(y)
        self.y = y


HOLDERS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Any]]] = {
    "frozenset": (lambda y: frozenset([(y, 1)]), lambda found: next(iter(found))[0]),
    "set": (lambda y: {y}, lambda found: next(iter(found))),
    "keys": (lambda y: {1: 2, y: 3}, lambda found: [*found][1]),
    "method": (lambda y: y.add, lambda found: found.__self__),
    "special method": (lambda y: y.__len__, lambda found: found.__self__),
    "error": (KeepingError, lambda found: found.args[0]),
    "attribute of an error": (KeepingError, lambda found: found.y),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_what_holds_what_is_selected(name: str) -> None:
    """In the call that is recorded, too, it is the very tensor that others have."""
    make, held = HOLDERS[name]

    def function(x: Tensor, kept: list[Any]) -> Tensor:
        y = x - 1
        if x.sum() > 0:
            y = x + 1
        kept.append(make(y))
        kept.append(y)
        return y * 2

    recorded = hostjit.capture(function)
    for x in WAYS * 2:
        kept: list[Any] = []
        recorded(x, kept)
        holder, y = kept
        assert held(holder) is y
        assert torch.equal(y, x + 1 if x.sum() > 0 else x - 1)
        assert not isinstance(holder, (set, dict)) or y in holder
