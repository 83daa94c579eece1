# SPDX-License-Identifier: Apache-2.0
"""Files of functions whose calls bring new objects, the same ones twice, or other numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit


@dataclasses.dataclass
class Batch:
    x: Tensor
    y: Tensor
    gain: float = 2.0


@dataclasses.dataclass
class Nested:
    batches: list[Batch]
    name: str = "train"


class Pair:
    __slots__ = ("left", "right")

    def __init__(self, left: Tensor, right: Tensor) -> None:
        self.left = left
        self.right = right


def batch() -> Batch:
    return Batch(torch.randn(3), torch.randn(3))


def weighted(given: Batch) -> Tensor:
    return given.x * given.gain + given.y


def returned(given: Batch) -> Batch:
    return Batch(given.x + 1, given.y, 3.0)


def of_pairs(given: Pair) -> Tensor:
    return given.left - given.right


def of_lists(given: Nested) -> Tensor:
    total = torch.zeros(3)
    for each in given.batches:
        total = total + each.x * each.gain
    return total


CASES: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "dataclass": (weighted, batch),
    "result": (returned, batch),
    "slots": (of_pairs, lambda: Pair(torch.randn(3), torch.randn(3))),
    "nested": (of_lists, lambda: Nested([batch(), batch()])),
}
MAKERS = [hostjit.compile, hostjit.capture]


def saved(compiled: Any, path: Path) -> Any:
    hostjit.save(compiled, path)
    return hostjit.load(path, classes=[Batch, Nested, Pair])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("make", MAKERS)
def test_calls_with_new_objects(make: Callable[..., Any], name: str, tmp_path: Path) -> None:
    function, example = CASES[name]
    compiled = make(function)
    for _ in range(5):
        compiled(example())
    loaded = saved(compiled, tmp_path / "objects")
    again = saved(loaded, tmp_path / "again")
    for _ in range(3):
        given = example()
        expected = function(given)
        for each in (loaded, again):
            found = each(given)
            assert type(found) is type(expected)
            if isinstance(found, Batch):
                found, expected = vars(found), vars(expected)
            torch.testing.assert_close(found, expected)
            expected = function(given)


def test_other_fields_are_other_calls(tmp_path: Path) -> None:
    captured = hostjit.capture(weighted)
    for _ in range(4):
        captured(batch())
    loaded = saved(captured, tmp_path / "objects")
    with pytest.raises(hostjit.Error, match=r"Batch\(x=float32\[3\], y=float32\[3\], gain=2.0\)"):
        loaded(Batch(torch.randn(3), torch.randn(3), 5.0))
    with pytest.raises(hostjit.Error, match=r"classes=\[\.\.\.\]"):
        hostjit.load(tmp_path / "objects")


def test_values_that_were_read_of_objects(tmp_path: Path) -> None:
    def branch(given: Batch) -> Tensor:
        return given.x * 2 if bool(given.y.sum() > 0) else given.x - 1

    captured = hostjit.capture(branch)
    for _ in range(4):
        captured(Batch(torch.randn(3), torch.ones(3)))
    loaded = saved(captured, tmp_path / "objects")
    x = torch.randn(3)
    torch.testing.assert_close(loaded(Batch(x, torch.ones(3))), x * 2)
    with pytest.raises(hostjit.MismatchError, match="expected True, found False"):
        loaded(Batch(x, -torch.ones(3)))


def test_a_class_that_has_other_slots_now(tmp_path: Path) -> None:
    captured = hostjit.capture(of_pairs)
    for _ in range(4):
        captured(Pair(torch.randn(3), torch.randn(3)))
    hostjit.save(captured, tmp_path / "objects")
    other = type("Pair", (), {"__slots__": ("left",), "__module__": Pair.__module__})
    with pytest.raises(hostjit.Error, match="had slots"):
        hostjit.load(tmp_path / "objects", classes=[other])


@pytest.mark.parametrize("make", MAKERS)
def test_which_containers_are_one(make: Callable[..., Any], tmp_path: Path) -> None:
    def joined(left: list[Tensor], right: list[Tensor]) -> Tensor:
        return left[0] * (2 if left is right else 3)

    compiled = make(joined)
    same = [torch.randn(3)]
    for _ in range(4):
        compiled(same, same)
    loaded = saved(compiled, tmp_path / "lists")
    x = torch.randn(3)
    given = [x]
    torch.testing.assert_close(loaded(given, given), x * 2)
    with pytest.raises(hostjit.Error, match="no program for this"):
        loaded([x], [x])


@pytest.mark.filterwarnings("ignore:hostjit.*keeps meeting new values")
def test_calls_with_other_numbers(tmp_path: Path) -> None:
    captured = hostjit.capture(lambda x, gain: x * gain)
    x = torch.randn(3)
    for gain in (0.5, 0.25, 0.125, 0.75, 1.5):
        captured(x, gain)
    loaded = saved(captured, tmp_path / "numbers")
    for gain in (7.0, -0.5):
        torch.testing.assert_close(loaded(x, gain), x * gain)


def test_fields_that_no_call_reads(tmp_path: Path) -> None:
    fast = hostjit.compile(of_lists, fallback=False)
    for number in range(4):
        fast(Nested([batch()], f"file {number}"))
    loaded = saved(fast, tmp_path / "of_lists.hostjit")
    given = Nested([batch()], "another")
    torch.testing.assert_close(loaded(given), of_lists(given))
    with pytest.raises(hostjit.Error, match="name=any"):
        loaded(Nested([batch()] * 3))
