# SPDX-License-Identifier: Apache-2.0
"""Changes of containers: those that Dynamo follows wrongly are Python's own."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit.capturing.guards.full_check import GuardCheck

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


def deque_of_two(items: deque[Tensor], x: Tensor) -> Tensor:
    items.append(x)
    items.appendleft(x * 2)
    items.rotate(1)
    return items[0] + 1


def extended_deque(items: deque[Tensor], x: Tensor) -> Tensor:
    items.extend([x, x + 1])
    items.popleft()
    return items[0] + 1


def own_deque(items: deque[Tensor], x: Tensor) -> Tensor:
    own = deque([x], maxlen=2)
    own.extend([x + 1, x + 2])
    own.append(x * 3)
    return own[0] + items[0]


@pytest.mark.parametrize("function", [deque_of_two, extended_deque, own_deque])
def test_deques_of_limited_length(function: Callable[[deque[Tensor], Tensor], Tensor]) -> None:
    fast = hostjit.compile(function)
    x = torch.ones(1) * 5
    found = deque([torch.ones(1), torch.zeros(1)], maxlen=3)
    expected = deque([torch.ones(1), torch.zeros(1)], maxlen=3)
    with torch.no_grad():
        for _ in range(4):
            assert_close(fast(found, x), function(expected, x))
            assert_close(list(found), list(expected))


@pytest.mark.parametrize(
    "function",
    [
        lambda items, x: (x + 1, items.maxlen),
        lambda items, x: (x + 1, _appended(items.copy())),
        lambda items, x: (x + 1, _appended(copy.copy(items))),
        lambda items, x: (x + 1, _appended(deque(items, items.maxlen))),
        lambda items, x: (x + 1, items + deque([9])),
        lambda items, x: (x + 1, items * 2),
        lambda items, x: (x + 1, deque([1, 2], maxlen=2) * 2),
        lambda items, x: (x + 1, _appended(deque([1, 2], maxlen=2).copy())),
        lambda items, x: (x + 1, _doubled(items)),
    ],
)
def test_results_have_the_limit_of_a_deque(
    function: Callable[[deque[int], Tensor], tuple[Tensor, Any]],
) -> None:
    fast = hostjit.compile(function)
    with torch.no_grad():
        for limit in (3, 3, None, 2, 5):
            x, found = fast(deque([1, 2, 3], maxlen=limit), torch.ones(1))
            _, expected = function(deque([1, 2, 3], maxlen=limit), torch.ones(1))
            assert_close(x, torch.full((1,), 2.0))
            assert found == expected
            assert getattr(found, "maxlen", 0) == getattr(expected, "maxlen", 0)


def _taken_away(seen: set[int], x: Tensor) -> Tensor:
    seen -= {1, 7}
    return x * len(seen)


def _kept(seen: set[int], x: Tensor) -> Tensor:
    seen &= {1, 2}
    return x * len(seen)


def _put_in(seen: set[int], x: Tensor) -> Tensor:
    seen |= {1, 7}
    return x * len(seen)


def _exchanged(seen: set[int], x: Tensor) -> Tensor:
    seen ^= {1, 7}
    return x * len(seen)


@pytest.mark.parametrize("function", [_taken_away, _kept, _put_in, _exchanged])
def test_operators_change_sets(function: Callable[[set[int], Tensor], Tensor]) -> None:
    fast = hostjit.compile(function)
    found, expected = {1, 2, 3}, {1, 2, 3}
    with torch.no_grad():
        for _ in range(3):
            assert_close(fast(found, torch.ones(1)), function(expected, torch.ones(1)))
            assert found == expected


steps = deque([1, 2, 3], maxlen=3)


def _set_an_element(x: Tensor) -> tuple[Tensor, deque[int]]:
    global steps
    items = steps
    items[0] += 4
    steps = items
    return x + 1, items


def _delete_an_element(x: Tensor) -> tuple[Tensor, deque[int]]:
    global steps
    items = steps
    del items[0]
    steps = items
    return x + 1, items


@pytest.mark.parametrize("function", [_set_an_element, _delete_an_element])
def test_a_global_deque_whose_elements_change_stays_as_it_is(
    function: Callable[[Tensor], tuple[Tensor, deque[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = hostjit.compile(function)
    found, expected = (deque([1, 2, 3], maxlen=3) for _ in range(2))
    with torch.no_grad():
        for _ in range(3):
            monkeypatch.setitem(globals(), "steps", expected)
            function(torch.ones(1))
            monkeypatch.setitem(globals(), "steps", found)
            x, items = fast(torch.ones(1))
            assert_close(x, torch.full((1,), 2.0))
            assert items is steps is found
            assert items == expected
            assert items.maxlen == 3


def _appended(items: deque[int]) -> deque[int]:
    items.append(8)
    return items


def _doubled(items: deque[int]) -> deque[int]:
    items *= 2
    return items


def test_an_ordered_dict_whose_order_changes() -> None:
    def function(items: OrderedDict[str, Tensor]) -> Tensor:
        items.move_to_end("x")
        return items["x"] + 1

    fast = hostjit.compile(function)
    with torch.no_grad():
        for _ in range(3):
            items = OrderedDict(x=torch.ones(1), y=torch.zeros(1))
            assert_close(fast(items), torch.full((1,), 2.0))
            assert list(items) == ["y", "x"]


class Names(list[int]):
    pass


class Table(dict[int, int]):
    pass


class Seen(set[int]):
    pass


class Counted:
    def __init__(self) -> None:
        self.calls = 0


@pytest.mark.parametrize("kind", [Names, Table, Seen])
def test_containers_of_a_class_of_the_users_beside_a_counter(kind: Any) -> None:
    counted, items = Counted(), kind()

    def function(x: Tensor) -> Tensor:
        counted.calls += 1
        if isinstance(items, list):
            items.append(3)
        elif isinstance(items, dict):
            items[len(items)] = 3
        else:
            items.add(len(items))
        return x + 1

    fast = hostjit.compile(function)
    with torch.no_grad():
        for _ in range(4):
            assert_close(fast(torch.ones(2)), torch.full((2,), 2.0))
    assert counted.calls == len(items) == 4


class Stacked:
    """Frames in a deque beside tensors that each call replaces."""

    def __init__(self) -> None:
        self.frames = deque([torch.zeros(3), torch.zeros(3)], maxlen=2)
        self.mean = torch.zeros(3)
        self.rest = [torch.ones(3), torch.zeros(3)]

    def __call__(self, x: Tensor) -> Tensor:
        factor = 3 if x is self.rest[0] else 5
        self.mean = self.mean * 0.5 + x
        self.rest[1] = self.mean + 1
        self.frames.append(x - self.mean)
        return torch.stack(list(self.frames)).sum(0) * factor + self.rest[0] + self.rest[1]


def test_tensors_are_replaced_beside_a_deque(monkeypatch: pytest.MonkeyPatch) -> None:
    stacked, expected = Stacked(), Stacked()
    compiled = hostjit.compile(stacked)
    compiled(torch.ones(3))
    expected(torch.ones(3))
    renewed: list[Any] = []
    for step in range(6):
        if step == 3:  # the watches hold, though the tensors are others
            monkeypatch.setattr(GuardCheck, "refresh", lambda *given: renewed.append(given))
        x = torch.full((3,), float(step))
        assert_close(compiled(x), expected(x))
        assert_close(list(stacked.frames), list(expected.frames))
    assert not renewed
    monkeypatch.undo()
    changes: list[Callable[[Stacked], Any]] = [
        lambda held: setattr(held, "mean", held.rest[0]),
        lambda held: setattr(held, "mean", torch.ones(3, dtype=torch.float64)),
        lambda held: held.rest.__setitem__(0, held.rest[1]),
        lambda held: held.frames.append(torch.ones(3)),
    ]
    for change in changes:
        for held in (stacked, expected):
            change(held)
        for _ in range(2):
            assert_close(compiled(stacked.mean), expected(expected.mean))
            assert_close(compiled(x), expected(x))


class Batch(list[float]):
    """A list of a user's class."""


class Chosen(set[float]):
    """A set of a user's class."""


class Fields(dict[float, float]):
    """A dict of a user's class."""


def length(x: Tensor, items: Any) -> Tensor:
    return x * 2 + len(items)


def emptiness(x: Tensor, items: Any) -> Tensor:
    return x + 1 if items else x - 1


def membership(x: Tensor, items: Any) -> Tensor:
    return x + (2 if 3.0 in items else 1)


def elements(x: Tensor, items: Any) -> Tensor:
    for item in items:
        x = x * 2 + item
    return x


@pytest.mark.parametrize("read", [length, emptiness, membership, elements])
@pytest.mark.parametrize("kind", [Batch, Chosen, Fields])
@pytest.mark.parametrize("place", ["argument", "variable"])
def test_an_object_of_a_container_class_changes_between_calls(
    kind: Any, read: Callable[..., Tensor], place: str
) -> None:
    items = kind()

    def of_variable(x: Tensor) -> Tensor:
        return read(x, items)

    function = read if place == "argument" else of_variable
    fast = hostjit.compile(function)
    for values in ([1, 2, 3], [1, 2, 3, 4], [1], [], [5, 6], [5, 6], [6, 5], [3]):
        items.clear()
        items.update(dict.fromkeys(values, 1)) if kind is Fields else None
        items.update(values) if kind is Chosen else None
        items.extend(values) if kind is Batch else None
        args = (torch.ones(2), items) if place == "argument" else (torch.ones(2),)
        assert_close(fast(*args), function(*args))


CHANGES_OF_LISTS = [
    lambda items: items.append(5.0),
    lambda items: items.pop(0),
    lambda items: items.sort(),
    lambda items: items.__iadd__([3.0]),
    lambda items: items.__imul__(2),
    lambda items: items.__setitem__(0, 7.0),
    lambda items: copy.copy(items).append(1.0),
]
CHANGES_OF_SETS = [
    lambda items: items.add(5.0),
    lambda items: items.discard(1.0),
    lambda items: items.__ior__({7.0}),
    lambda items: items.__isub__({1.0}),
    lambda items: copy.copy(items).add(9.0),
]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        *((Batch, change) for change in CHANGES_OF_LISTS),
        *((Chosen, change) for change in CHANGES_OF_SETS),
    ],
)
@pytest.mark.parametrize("place", ["argument", "made"])
def test_an_object_of_a_container_class_changes_within_a_call(
    kind: Any, change: Callable[..., Any], place: str
) -> None:
    def of_argument(x: Tensor, items: Any) -> tuple[Tensor, Any]:
        change(items)
        return x * 2 + len(items), items

    def of_made(x: Tensor, _: Any) -> tuple[Tensor, Any]:
        items = kind([3.0, 1.0, 2.0])
        change(items)
        return x * 2 + len(items), items

    function = of_argument if place == "argument" else of_made
    fast = hostjit.compile(function)
    found, expected = kind([3.0, 1.0, 2.0]), kind([3.0, 1.0, 2.0])
    for _ in range(3):
        x = torch.ones(2)
        (y, items), (z, others) = fast(x, found), function(x, expected)
        assert_close(y, z)
        assert type(items) is type(others) and list(items) == list(others)
        assert (items is found) == (others is expected)
        assert list(found) == list(expected)


def doubled(items: Batch) -> Batch:
    items *= 2
    return items


def extended(items: Batch) -> Batch:
    items += [8.0]
    return items


def joined(items: Chosen) -> Chosen:
    items |= {9.0}
    return items


def thinned(items: Chosen) -> Chosen:
    items -= {1.0}
    return items


@pytest.mark.parametrize("operate", [doubled, extended, joined, thinned])
def test_operators_in_place_of_a_container_class(operate: Callable[[Any], Any]) -> None:
    def step(x: Tensor, items: Any) -> tuple[Tensor, Any]:
        items = operate(items)
        return x + len(items), items

    fast = hostjit.compile(step)
    kind = Batch if operate in (doubled, extended) else Chosen
    found, expected = kind([1.0, 2.0]), kind([1.0, 2.0])
    for _ in range(3):
        (y, items), (z, _) = fast(torch.ones(2), found), step(torch.ones(2), expected)
        assert_close(y, z)
        assert items is found and found == expected


class Settings(OrderedDict[str, float]):
    """An ordered dict of a user's class."""


@pytest.mark.parametrize(
    "make",
    [
        lambda items: items.copy(),
        lambda items: items | {"c": 3.0},
        lambda items: items.__ior__({"c": 3.0}),
        lambda items: type(items).fromkeys("xy", 1.0),
        lambda items: copy.copy(items),
    ],
)
@pytest.mark.parametrize("kind", [Settings, OrderedDict, dict])
def test_what_is_made_of_a_dict_has_its_class(kind: Any, make: Callable[[Any], Any]) -> None:
    def step(x: Tensor, items: Any) -> tuple[Tensor, Any]:
        made = make(items)
        return x + len(made), made

    fast = hostjit.compile(step)
    for _ in range(3):
        found, expected = kind(a=1.0, b=2.0), kind(a=1.0, b=2.0)
        (y, made), (z, wanted) = fast(torch.ones(2), found), step(torch.ones(2), expected)
        assert_close(y, z)
        assert type(made) is type(wanted) and made == wanted
        assert (made is found) == (wanted is expected) and found == expected


class Point(tuple[float, float]):
    """A tuple of a user's class."""


@pytest.mark.parametrize(
    "container",
    [
        Point([1.0, 2.0]),
        Batch([1.0, 2.0]),
        Chosen([1.0, 2.0]),
        frozenset([1.0, 2.0]),
        deque([1.0, 2.0]),
        defaultdict(int, {1.0: 2}),
        Counter("aab"),
        torch.Size([2, 3]),
    ],
)
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_copies_have_what_is_in_a_container(container: Any, make: Callable[[Any], Any]) -> None:
    def step(x: Tensor, items: Any) -> tuple[Tensor, Any]:
        made = make(items)
        return x + len(made), made

    fast = hostjit.compile(step)
    for _ in range(3):
        (y, made), (z, wanted) = fast(torch.ones(2), container), step(torch.ones(2), container)
        assert_close(y, z)
        assert type(made) is type(wanted) and made == wanted


KEPT = OrderedDict(a=1.0, b=10.0, c=100.0)


def first_of_a_copy(x: Tensor) -> Tensor:
    copied = KEPT.copy()
    return x * copied.popitem(last=False)[1]


def first_of_a_union(x: Tensor) -> Tensor:
    joined = KEPT | {"d": 3.0}
    return x * joined.popitem(last=False)[1] + len(joined)


def last_of_a_copy(x: Tensor) -> Tensor:
    copied = KEPT.copy()
    return x * copied.popitem()[1] + copied.popitem(last=True)[1]


@pytest.mark.parametrize("make", [hostjit.compile, "backend"])
@pytest.mark.parametrize("function", [first_of_a_copy, first_of_a_union, last_of_a_copy])
def test_ends_of_copies_of_an_ordered_dict(function: Any, make: Any) -> None:
    torch._dynamo.reset()
    fast = torch.compile(function, backend="hostjit") if make == "backend" else make(function)
    for _ in range(3):
        x = torch.randn(3)
        assert_close(fast(x), function(x))
    assert len(KEPT) == 3
