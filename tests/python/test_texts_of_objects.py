# SPDX-License-Identifier: Apache-2.0
"""Texts of objects, and their `__dict__`, say what the objects hold at the call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


@dataclasses.dataclass
class Record:
    value: float
    name: str = "a"


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    value: float


class Represented:
    def __init__(self, value: float) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Represented({self.value})"


class Told(Represented):
    def __str__(self) -> str:
        return f"told {self.value}"


TEXTS: dict[str, Callable[[Any], Any]] = {
    "str": lambda v: str(v),
    "formatted": lambda v: (f"{v}", f"{v!r}"),
    "format": lambda v: format(v),
    "method": lambda v: "{}".format(v),  # noqa: UP032
    "percent": lambda v: "%s" % v,  # noqa: UP031
    "repr": lambda v: repr(v),
    "in a list": lambda v: str([v]),
    "vars": lambda v: vars(v) if hasattr(v, "__dict__") else 0,
    "items": lambda v: list(vars(v).items()) if hasattr(v, "__dict__") else 0,
}


class Holder:
    held: Any = None


@pytest.mark.parametrize("place", ["argument", "attribute", "closure"])
@pytest.mark.parametrize("kind", [Record, Slots, Represented, Told])
@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str, kind: Callable[[float], Any], place: str) -> None:
    tell, holder = TEXTS[name], Holder()

    def of_argument(x: Tensor, value: Any) -> Any:
        return x * 2, tell(value)

    def of_attribute(x: Tensor, of: Holder) -> Any:
        return x * 2, tell(of.held)

    def of_closure(x: Tensor, _: Any) -> Any:
        return x * 2, tell(holder.held)

    functions = {"argument": of_argument, "attribute": of_attribute, "closure": of_closure}
    fast = hostjit.compile(functions[place])
    for number in (2.0, 3.0, 2.0, 5.0):
        holder.held = kind(number)
        given = holder.held if place == "argument" else holder
        assert fast(torch.ones(2), given)[1] == tell(kind(number)), number
