# SPDX-License-Identifier: Apache-2.0
"""Classes of parameters: those that change nothing that a tensor has compute as tensors do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

BACKENDS: list[Callable[..., Any]] = [
    lambda function: hostjit.compile(function, fallback=False),
    lambda function: torch.compile(function, backend="hostjit", fullgraph=True),
]


class OnSphere(nn.Parameter):
    """As libraries of manifolds have them: more attributes, and a method."""

    radius = 1.0

    def __new__(cls, data: Tensor, radius: float = 1.0) -> OnSphere:
        made = super().__new__(cls, data)
        made.radius = radius
        return made

    def project(self) -> Tensor:
        return self.detach() / self.detach().norm() * self.radius

    def __repr__(self) -> str:
        return "on a sphere"

    def __deepcopy__(self, memo: Any) -> OnSphere:
        return OnSphere(self.data.clone(), self.radius)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = OnSphere(torch.randn(3, 4), 2.0)
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight + self.bias).tanh() * self.weight.radius


@pytest.mark.parametrize("compile", BACKENDS)
def test_parameters_of_a_module(compile: Callable[..., Any]) -> None:
    model = Model()
    twin = copy.deepcopy(model)
    fast = compile(model)
    for batch in (2, 3, 2, 5):
        x = torch.randn(batch, 3)
        found, expected = fast(x), twin(x)
        assert type(found) is Tensor
        found.sum().backward()
        expected.sum().backward()
        assert_close((found, model.weight.grad), (expected, twin.weight.grad))
    with torch.no_grad():
        for batch in (2, 3):
            x = torch.randn(batch, 3)
            assert_close(fast(x), twin(x))


@pytest.mark.parametrize("compile", BACKENDS)
def test_arguments(compile: Callable[..., Any]) -> None:
    def function(weight: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return x @ weight, weight

    fast = compile(function)
    with torch.no_grad():
        for weight in (OnSphere(torch.randn(3, 3)), torch.randn(3, 3), OnSphere(torch.ones(3, 3))):
            x = torch.randn(2, 3)
            product, same = fast(weight, x)
            assert_close(product, x @ weight)
            assert same is weight


class Scaled(nn.Parameter):
    def __matmul__(self, other: Tensor) -> Tensor:
        return 2 * super().__matmul__(other)


class Followed(nn.Parameter):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs or {})
        return found + 1 if func is Tensor.matmul else found


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("kind", [Scaled, Followed])
def test_what_changes_tensors_is_as_eager(kind: Any) -> None:
    def function(weight: Tensor, x: Tensor) -> Tensor:
        return (weight @ x).tanh()

    fast = hostjit.compile(function)
    weight = kind(torch.randn(3, 3))
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(3)
            assert_close(fast(weight, x), function(weight, x))
