# SPDX-License-Identifier: Apache-2.0
"""Variables of closures that methods read and change, of objects that the compiled code makes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

Function = Callable[[Tensor], Tensor]


class Gain:
    value = 1.0


def of_variables(which: str) -> tuple[Function, Callable[[], Any], Callable[[], None]]:
    """Return a function, one that tells what the variables hold, and one that changes them."""
    calls: list[int] = []
    gains = {"gain": 1.0}
    seen: set[int] = set()
    count = 0
    factor = 2.0
    held = torch.ones(2)
    gain = Gain()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            calls.append(len(calls))
            return function(*args) * factor

        return call

    class Made:
        def __init__(self) -> None:
            calls.append(1)

        def __enter__(self) -> int:
            calls.append(2)
            return len(calls)

        def __exit__(self, *_: object) -> None:
            calls.append(3)

        def __call__(self) -> float:
            gains["gain"] += 1
            return gains["gain"]

        def __add__(self, value: int) -> int:
            seen.add(len(seen) + value)
            return len(seen)

        def __len__(self) -> int:
            nonlocal count
            count += 1
            return count

        @property
        def size(self) -> float:
            return factor

        @staticmethod
        def alone() -> int:
            calls.append(4)
            return len(calls)

        @classmethod
        def of_class(cls) -> float:
            gain.value += 1
            return gain.value

        @counted
        def wrapped(self, value: float) -> float:
            return value

        def tensor(self) -> Tensor:
            return held

        def change(self) -> Tensor:
            return held.add_(1)

        def replace(self) -> Tensor:
            nonlocal held
            held = held * 2
            return held

        def each(self) -> Any:
            for value in (1.0, 2.0):
                calls.append(5)
                yield value * factor

    class Derived(Made):
        def __init__(self) -> None:
            super().__init__()
            self.factor = factor

    def in_context(x: Tensor) -> Tensor:
        with Made() as entered:
            return x * entered

    functions: dict[str, Function] = {
        "initialised": lambda x: (Made(), x * len(calls))[1],
        "of a base": lambda x: x * Derived().factor,
        "context": in_context,
        "call": lambda x: x * Made()(),
        "operator": lambda x: x * (Made() + 1),
        "length": lambda x: x * len(Made()),
        "property": lambda x: x * Made().size,
        "static": lambda x: x * Made().alone(),
        "class": lambda x: x * Made().of_class(),
        "wrapped": lambda x: x * Made().wrapped(3.0),
        "tensor": lambda x: x * Made().tensor(),
        "in place": lambda x: x * Made().change(),
        "replaced": lambda x: x * Made().replace(),
        "generator": lambda x: x * sum(Made().each()),
        "partial": lambda x: x * functools.partial(Made().wrapped, 3.0)(),
    }

    def state() -> Any:
        return list(calls), dict(gains), set(seen), count, factor, held.tolist(), gain.value

    def change() -> None:
        nonlocal factor, held, count
        factor += 1
        held = held + 1
        count += 3
        calls.append(0)
        gains["gain"] += 5
        gain.value += 5

    return functions[which], state, change


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize(
    "which",
    [
        *("initialised", "of a base", "context", "call", "operator", "length", "property"),
        *("static", "class", "wrapped", "tensor", "in place", "replaced", "generator", "partial"),
    ],
)
def test_cells(which: str, compile: Callable[[Any], Any]) -> None:
    function, state, change = of_variables(which)
    expected_function, expected_state, expected_change = of_variables(which)
    fast = compile(function)
    x = torch.ones(2)
    for call in range(6):
        assert torch.equal(fast(x), expected_function(x)), call
        assert state() == expected_state()
        if call >= 2:
            change()
            expected_change()
