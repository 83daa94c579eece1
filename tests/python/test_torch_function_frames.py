# SPDX-License-Identifier: Apache-2.0
"""Tensors of a class with a `__torch_function__` of its own, in code that runs in parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Typed(Tensor):
    """Keeps what kind of elements a tensor has, as libraries of Lie groups do."""

    kind: int

    def __init__(self, *data: Any, kind: int) -> None:
        assert self.shape[-1] == kind
        self.kind = kind

    @staticmethod
    def __new__(cls, *data: Any, kind: int) -> Typed:
        return Tensor.as_subclass(data[0], Typed)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        plain = (Tensor if kind is Typed else kind for kind in types)
        return Tensor.__torch_function__(func, plain, args, kwargs or {})

    def tensor(self) -> Tensor:
        return Tensor.as_subclass(self, Tensor)

    def wider(self) -> Typed:
        x = self.tensor()
        return Typed(torch.cat([x, x[..., :1]], -1), kind=self.kind + 1)


@pytest.mark.parametrize("make", ["hostjit", "backend"])
def test_several_shapes(make: str) -> None:
    """Dynamo's own code for such a frame asked for sizes without an end."""

    def function(x: Tensor) -> Tensor:
        return Typed(x, kind=3).wider().wider().tensor() + 1

    torch._dynamo.reset()
    compiled = hostjit.compile(function)
    fast = torch.compile(function, backend="hostjit") if make == "backend" else compiled
    for rows in (4, 4, 5, 6, 1):
        x = torch.randn(rows, 3)
        assert_close(fast(x), function(x))
