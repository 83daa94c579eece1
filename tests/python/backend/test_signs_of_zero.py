# SPDX-License-Identifier: Apache-2.0
"""Floats outside of tensors that are 0.0 in one call and -0.0 in the next."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

held: dict[str, Any] = {}
owner = SimpleNamespace()
module: Any = nn.Module()


def divides(x: Tensor, _: Any) -> Tensor:
    return x / held["value"]


def copies_the_sign(x: Tensor, _: Any) -> Tensor:
    return x * math.copysign(2.0, owner.value)


def of_an_argument(x: Tensor, values: list[float]) -> Tensor:
    return x * math.copysign(2.0, values[0])


def of_a_tuple(x: Tensor, values: list[float]) -> Tensor:
    return x / module.values[0] + module.values[1]


def of_a_complex_number(x: Tensor, values: list[float]) -> Tensor:
    return x * math.copysign(2.0, held["complex"].real)


@pytest.mark.parametrize(
    "function", [divides, copies_the_sign, of_an_argument, of_a_tuple, of_a_complex_number]
)
def test_are_told_apart(function: Callable[..., Tensor]) -> None:
    runs = [torch.compile(function, backend="hostjit"), hostjit.compile(function)]
    for value in (0.0, 0.0, -0.0, -0.0, 0.0):
        held["value"] = owner.value = value
        held["complex"] = complex(value, 1.0)
        module.values = (value, 1.0)
        expected = function(torch.ones(2), [value])
        for run in runs:
            assert run(torch.ones(2), [value]).tolist() == expected.tolist()
