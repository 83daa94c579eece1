# SPDX-License-Identifier: Apache-2.0
"""Attributes of modules and other objects that a call assigns, deletes and reads again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit


def asks_the_dict(self: Any, x: Tensor) -> Tensor:
    self.v = x.sum()
    found = self.v
    del self.v
    return x * found + (3 if self.__dict__.get("v") is None else 5)


def makes_it_again(self: Any, x: Tensor) -> Tensor:
    self.v = x.sum()
    found = self.v
    del self.v
    return x * found + self.v


def deletes_and_assigns(self: Any, x: Tensor) -> Tensor:
    self.v = x.sum()
    del self.v
    self.v = x.sum() * 2
    del self.__dict__["v"]
    return x + hasattr(self, "v")


class Holder:
    @functools.cached_property
    def v(self) -> Tensor:
        return torch.ones(2)


class Module(nn.Module):
    @functools.cached_property
    def v(self) -> Tensor:
        return torch.ones(2)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("kind", [Holder, Module])
@pytest.mark.parametrize("program", [asks_the_dict, makes_it_again, deletes_and_assigns])
@pytest.mark.parametrize(
    "compile", [hostjit.compile, lambda f: torch.compile(f, backend="hostjit")]
)
def test_is_absent_or_made_again(
    compile: Callable[..., Any], program: Callable[..., Any], kind: Callable[[], Any]
) -> None:
    torch._dynamo.reset()
    results = []
    for run in (program, compile(program)):
        holder = kind()
        found = []
        for number in range(5):
            if number % 2:
                holder.v = torch.tensor(-100.0)
            result = run(holder, torch.arange(2.0) + number).tolist()
            found.append((result, str(vars(holder).get("v"))))
        results.append(found)
    assert results[1] == results[0]


class WithProperty:
    def __init__(self) -> None:
        self._v = 1.0

    @property
    def v(self) -> float:
        return self._v

    @v.deleter
    def v(self) -> None:
        self._v = 5.0

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize(
    "compile", [hostjit.compile, lambda f: torch.compile(f, backend="hostjit")]
)
def test_a_property_has_its_deleter_called(compile: Callable[..., Any]) -> None:
    def program(x: Tensor, holder: Any) -> Tensor:
        before = holder.v
        del holder.v
        result: Tensor = x * before + holder.v
        return result

    torch._dynamo.reset()
    run = compile(program)
    for _ in range(4):
        x = torch.arange(2.0)
        assert run(x, WithProperty()).tolist() == program(x, WithProperty()).tolist()
