# SPDX-License-Identifier: Apache-2.0
"""Floats outside of tensors that are 0.0 in one call and -0.0 in the next."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

held: dict[str, Any] = {}
owner = SimpleNamespace()


def divides(x: Tensor, _: Any) -> Tensor:
    return x / held["value"]


def copies_the_sign(x: Tensor, _: Any) -> Tensor:
    return x * math.copysign(2.0, owner.value)


def of_an_argument(x: Tensor, values: list[float]) -> Tensor:
    return x * math.copysign(2.0, values[0])


@pytest.mark.parametrize("function", [divides, copies_the_sign, of_an_argument])
def test_are_told_apart(function: Callable[..., Tensor]) -> None:
    run = torch.compile(function, backend="hostjit")
    for value in (0.0, 0.0, -0.0, -0.0, 0.0):
        held["value"] = owner.value = value
        expected = function(torch.ones(2), [value])
        assert run(torch.ones(2), [value]).tolist() == expected.tolist()
