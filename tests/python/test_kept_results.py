# SPDX-License-Identifier: Apache-2.0
"""Functions of `functools.lru_cache` and `cache` in compiled code: they return what they kept."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs in parts")


@pytest.fixture(autouse=True)
def only_hostjit_warns() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Dynamo detected")
        yield


def test_random_numbers_that_are_kept() -> None:
    @functools.cache
    def noise(n: int) -> Tensor:
        return torch.randn(n)

    fast = hostjit.compile(lambda x: x + noise(len(x)))
    for n in (2, 3, 2, 4, 3, 2):
        x = torch.zeros(n)
        assert torch.equal(fast(x), noise(n))
    assert noise.cache_info().misses == 3


def test_a_kept_tensor_that_is_changed() -> None:
    @functools.cache
    def total() -> Tensor:
        return torch.zeros(2)

    @hostjit.compile
    def add(x: Tensor) -> Tensor:
        kept = total()
        kept += x
        return kept

    for count in range(1, 4):
        assert add(torch.ones(2)) is total()
        assert total().tolist() == [count, count]


def test_methods_and_state_that_has_changed() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 1.0

        @functools.lru_cache  # noqa: B019
        def row(self, n: int) -> Tensor:
            return torch.full((n,), self.scale)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.row(len(x))

    model = Scaled()
    fast = hostjit.compile(model)
    for scale in (1.0, 2.0, 3.0):
        model.scale = scale
        assert fast(torch.ones(2)).tolist() == [1.0, 1.0]
    model.row.cache_clear()
    assert fast(torch.ones(2)).tolist() == [3.0, 3.0]


def test_a_kept_number_is_compiled_with() -> None:
    scale = 2.0
    told: list[str] = []

    @functools.cache
    def factor(name: str) -> float:
        told.append(name)
        return scale

    compiled = hostjit.compile(lambda x: x * factor("a"), fallback=False)
    for _ in range(2):
        assert compiled(torch.ones(1)).item() == 2.0
    fast = hostjit.compile(lambda x: x * factor("b"))
    for value in (2.0, 5.0, 7.0):
        scale = value
        assert fast(torch.ones(1)).item() == 2.0
    assert told == ["a", "b"]


def test_what_has_no_hash_is_refused() -> None:
    @functools.cache
    def largest(values: Any) -> int:
        return max(values)

    fast = hostjit.compile(lambda x, values: x + largest(values))
    for _ in range(2):
        with pytest.raises(TypeError, match="unhashable type: 'list'"):
            fast(torch.ones(1), [1, 2])
    assert fast(torch.ones(1), (1, 2)).item() == 3.0
