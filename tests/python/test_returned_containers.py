# SPDX-License-Identifier: Apache-2.0
"""Containers among the arguments that a call returns are those of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import hostjit


class Pair(NamedTuple):
    first: Any
    second: Any


CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda value: (value, 2.0),
    "list": lambda value: [value, 2.0],
    "dict": lambda value: {0: value},
    "namedtuple": lambda value: Pair(value, 2.0),
    "nested": lambda value: [(value, 1), {"x": [value]}],
}


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("gradients", [False, True])
def test_a_container_that_is_returned(kind: str, gradients: bool) -> None:
    def function(x: torch.Tensor, given: Any) -> Any:
        return x * 2, given, {"also": given}

    make = CONTAINERS[kind]
    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(3)
    with torch.set_grad_enabled(gradients):
        for value in (*(torch.full((1,), float(i)) for i in range(3)), 0.5, 0.25, 0.125, 7, 8, 9):
            given = make(value)
            found = compiled(x, given)
            torch.testing.assert_close(found[0], x * 2)
            assert found[1] is given and found[2]["also"] is given


def test_a_part_of_one() -> None:
    def function(x: torch.Tensor, *, state: dict[str, Any]) -> Any:
        return x * state["scale"], state["inner"], ()

    compiled = hostjit.compile(function, fallback=False)
    x = torch.randn(3)
    for value in (0.5, 0.25, 0.125, 2.5):
        inner = [torch.full((1,), value), value]
        found = compiled(x, state={"scale": value, "inner": inner})
        torch.testing.assert_close(found[0], x * value)
        assert found[1] is inner and found[2] == ()
