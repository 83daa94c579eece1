# SPDX-License-Identifier: Apache-2.0
"""An object that is found in two places, one local and the other global; later there are two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit


class Rates:
    def __init__(self, rate: float) -> None:
        self.count = 0
        self.rates = torch.full((2,), rate)


SHARED = Rates(1)


class Owner:
    def __init__(self) -> None:
        self.rates = SHARED

    def __call__(self, x: Tensor) -> Tensor:
        y = x + SHARED.rates
        self.rates.count += 1
        return y * self.rates.rates


@pytest.mark.parametrize("through", ["compile", "capture", "torch.compile"])
def test_one_object_that_becomes_two(through: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(call: Callable[..., Any]) -> Callable[..., Any]:
        if through == "torch.compile":
            return torch.compile(call, backend="hostjit")
        return hostjit.compile(call) if through == "compile" else hostjit.capture(call)

    def calls(wrap: Callable[..., Any]) -> list[Any]:
        monkeypatch.setitem(globals(), "SHARED", Rates(1))
        owner = Owner()
        call, found = wrap(owner.__call__), []
        for number in range(12):
            if number == 4:
                monkeypatch.setitem(globals(), "SHARED", Rates(5))
            if number == 8:
                owner.rates = SHARED
            found += [call(torch.ones(2)), owner.rates.count, SHARED.count]
        return found

    torch.testing.assert_close(calls(made), calls(lambda call: call))
