# SPDX-License-Identifier: Apache-2.0
"""Objects whose class says how attributes are found: what it reads is watched, all of it."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from watch_checker import Watched

import hostjit
from hostjit.capturing.program import CapturedProgram
from hostjit.replacements import replaced_attribute


def make_configuration() -> Any:
    class Configuration:
        """Finds some attributes under other names."""

        other_names = {"size": "width"}  # noqa: RUF012
        kind = 1.0

        def __init__(self) -> None:
            self.width = 2.0
            self.height = 3.0
            self.unused = 0.0

        def __getattribute__(self, name: str) -> Any:
            if name != "other_names" and name in super().__getattribute__("other_names"):
                name = super().__getattribute__("other_names")[name]
            return super().__getattribute__(name)

        @property
        def area(self) -> float:
            return self.size * self.height

    return Configuration()


def scaled(x: torch.Tensor, configuration: Any) -> torch.Tensor:
    if hasattr(configuration, "missing"):
        x = x * configuration.missing
    return x * configuration.size + configuration.area + configuration.kind


def replace(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


CHANGES: dict[str, Callable[[Any], None]] = {
    "an attribute": lambda c: replace(c, "width", 4.0),
    "what a property reads": lambda c: replace(c, "height", 4.0),
    "an attribute that was missing": lambda c: replace(c, "missing", 4.0),
    "an attribute of the class": lambda c: replace(type(c), "kind", 4.0),
    "what hides an attribute of the class": lambda c: replace(c, "kind", 4.0),
    "a name": lambda c: type(c).other_names.update(size="height"),
    "a name more": lambda c: type(c).other_names.update(height="width"),
    "the names": lambda c: replace(type(c), "other_names", {"size": "height"}),
    "the names of the object": lambda c: replace(c, "other_names", {"size": "height"}),
    "the property": lambda c: replace(type(c), "area", property(lambda self: 7.0)),
    "the way": lambda c: replace(type(c), "__getattribute__", lambda self, name: 5.0),
}


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_what_it_finds_are_seen(name: str) -> None:
    configuration = make_configuration()
    fast = hostjit.compile(lambda x: scaled(x, configuration))
    x = torch.randn(3)
    with torch.no_grad():
        for change in (lambda _: None, CHANGES[name]):
            change(configuration)
            torch.testing.assert_close(fast(x), scaled(x, configuration))


@pytest.mark.skipif(
    torch.__version__ < (2, 12), reason="Dynamo guards what such a property returns: no watch does"
)
@pytest.mark.parametrize("name", CHANGES)
def test_a_way_of_its_own_to_find_attributes(name: str) -> None:
    configuration = make_configuration()
    watched = Watched(lambda x: scaled(x, configuration), torch.randn(3))
    configuration.unused = 5.0
    assert not watched.checker.failed()
    CHANGES[name](configuration)
    watched.assert_invalid()


def test_a_dict_of_a_class_of_its_own() -> None:
    class Registry(dict[str, float]):
        def find(self, name: str) -> float:
            return self.get(name, 1.0)

    registry = Registry(gain=2.0)
    watched = Watched(lambda x: x * registry.find("gain"), torch.randn(3))
    registry["gain"] = 3.0
    watched.assert_invalid()
    ordered = collections.OrderedDict(gain=2.0)
    watched = Watched(lambda x: x * ordered.get("gain", 1.0), torch.randn(3))
    ordered["gain"] = 3.0
    watched.assert_invalid()


def test_slots_that_a_lookup_of_a_class_finds_are_watched() -> None:
    class Slots:
        __slots__ = ("value",)

        def __getattribute__(self, name: str) -> Any:
            return super().__getattribute__(name)

    slots = Slots()
    slots.value = 2.0
    watched = Watched(lambda x: x * slots.value, torch.randn(3))
    slots.value = 3.0
    watched.assert_invalid()


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_calls_whose_reads_cannot_all_be_watched(runtime: str) -> None:
    """Checked at every call; a call that finds a difference runs eagerly, the next one compiled."""

    class Slots:
        __slots__ = ("value",)

        def __init__(self, value: float) -> None:
            self.value = value

    slots = Slots(2.0)

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [x * slots.value]

    fast = hostjit.compile(function, runtime=runtime)
    x = torch.randn(3)
    for value in (2.0, 3.0, 2.0):
        slots.value = value
        for _ in range(3):
            assert torch.equal(fast(x)[0], x * value)
    assert len(fast.specializations) == 2


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_an_argument_given_an_attribute(runtime: str) -> None:
    def function(x: torch.Tensor, others: dict[str, torch.Tensor]) -> torch.Tensor:
        y = others["y"]
        return y * 3 + x if hasattr(y, "marked") else y * 2 + x

    fast = hostjit.compile(function, runtime=runtime)
    x, y = torch.ones(3), torch.ones(3)
    for _ in range(2):
        assert torch.equal(fast(x, {"y": y}), torch.full((3,), 3.0))
    y.marked = True  # type: ignore[attr-defined]
    for _ in range(2):
        assert torch.equal(fast(x, {"y": y}), torch.full((3,), 4.0))
        assert torch.equal(fast(y, {"y": x}), torch.full((3,), 3.0))


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_an_argument_that_lacks_an_attribute_where_another_is_written(runtime: str) -> None:
    """No call looks at the guards again."""

    def function(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return total.add_(x * 3 if hasattr(x, "marked") else x * 2)

    def check(x: torch.Tensor, factor: int) -> None:
        total = torch.ones(3)
        for count in (1, 2, 3):
            assert torch.equal(fast(x, total), 1 + count * factor * x)

    revalidated = [0]
    original = CapturedProgram.revalidate

    def revalidate(*args: Any) -> bool:
        revalidated[0] += 1
        return original(*args)

    fast = hostjit.compile(function, runtime=runtime, fallback=False)
    plain, marked, other = torch.ones(3), torch.ones(3), torch.ones(3)
    marked.marked, other.other = True, True  # type: ignore[attr-defined]
    with replaced_attribute(CapturedProgram, "revalidate", revalidate):
        check(plain, 2)
    assert not revalidated[0]
    for x, factor in [(marked, 3), (plain, 2), (other, 2), (marked, 3), (plain, 2), (other, 2)]:
        check(x, factor)
    assert len(fast.specializations) == 3
    other.marked = True  # type: ignore[attr-defined]
    check(other, 3)
    plain.marked = True  # type: ignore[attr-defined]
    check(plain, 3)


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_a_class_of_tensors_given_an_attribute(
    runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = hostjit.compile(lambda x: x * 3 if hasattr(x, "marked") else x * 2, runtime=runtime)
    x = torch.ones(3)
    assert torch.equal(fast(x), x * 2)
    monkeypatch.setattr(torch.Tensor, "marked", True, raising=False)
    assert torch.equal(fast(x), x * 3)
