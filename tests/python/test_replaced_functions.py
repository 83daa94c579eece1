# SPDX-License-Identifier: Apache-2.0
"""Functions of PyTorch and methods of tensors that somebody replaces after the compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

Function = Callable[[Tensor], Tensor]
weight = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))


def replacement(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return torch.sub(torch.neg(x), 7.0)


def exponential(x: Tensor, *args: Any) -> Tensor:
    return torch.exp(x)


# The function, and what is replaced: of whom, its name and by what.
METHODS: dict[str, tuple[Function, Any, str, Any]] = {
    "method": (lambda x: x.relu(), Tensor, "relu", replacement),
    "sum": (lambda x: x + 1, Tensor, "__add__", replacement),
    "reflected sum": (lambda x: 1 + x, Tensor, "__radd__", replacement),
    "negative": (lambda x: -x, Tensor, "__neg__", exponential),
    "item": (lambda x: x[1], Tensor, "__getitem__", exponential),
    "length": (lambda x: x * len(x), Tensor, "__len__", lambda x: 9),
    "dims": (lambda x: x * x.dim(), Tensor, "dim", lambda x: 9),
    "attribute": (lambda x: x * x.shape[0], Tensor, "shape", property(lambda x: (9,))),
    "number": (lambda x: x * x.sum().item(), Tensor, "item", lambda x: 9),
    "of Python code": (lambda x: x / x.norm(), Tensor, "norm", replacement),
    "of a parameter": (lambda x: x + weight.relu(), Tensor, "relu", replacement),
    "of parameters": (lambda x: x + weight.relu(), nn.Parameter, "relu", replacement),
    "behind a function": (lambda x: F.softmax(x, 0), Tensor, "softmax", replacement),
}
FUNCTIONS: dict[str, tuple[Function, Any, str, Any]] = {
    "of torch": (lambda x: torch.relu(x), torch, "relu", replacement),
    "of functional": (lambda x: F.relu(x), F, "relu", replacement),
    "of functional in a module": (nn.ReLU(), F, "relu", replacement),
    "of torch in functional": (lambda x: F.relu(x), torch, "relu", replacement),
    "of torch in a module": (nn.ReLU(), torch, "relu", replacement),
}
ALL = METHODS | FUNCTIONS


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("name", ALL)
def test_replaced_functions(name: str, compile: Callable[[Any], Any]) -> None:
    function, owner, attribute, new = ALL[name]
    fast = compile(function)
    x = torch.tensor([1.0, -2.0, 3.0])
    first = function(x)
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(2):
            for _ in range(2):
                torch.testing.assert_close(fast(x), first)
            patch.setattr(owner, attribute, new)
            results = [fast(x) for _ in range(2)]
            expected = function(x)
            patch.undo()
            assert not torch.equal(expected, first)
            for result in results:
                torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("name", ["method", "sum", "of Python code", *FUNCTIONS])
def test_replaced_functions_are_compiled(name: str) -> None:
    function, owner, attribute, new = ALL[name]
    fast = hostjit.compile(function, fallback=False)
    x = torch.tensor([1.0, -2.0, 3.0])
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(2):
            torch.testing.assert_close(fast(x), function(x))
            patch.setattr(owner, attribute, new)
            torch.testing.assert_close(fast(x), function(x))
            patch.undo()
    assert len(fast.specializations) == 2


def test_functions_that_are_added_change_nothing() -> None:
    fast = hostjit.compile(lambda x: F.relu(x) + 1, fallback=False)
    fast(torch.ones(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "of_this_test", len, raising=False)
        patch.setattr(Tensor, "of_this_test", len, raising=False)
        assert fast(torch.ones(2)).tolist() == [2.0, 2.0]
    assert len(fast.specializations) == 1


def test_settings_of_pytorch_replace_no_functions() -> None:
    fast = hostjit.compile(lambda x: F.relu(x) + 1, fallback=False)
    fast(torch.ones(2))
    torch.set_default_dtype(torch.float64)
    torch.set_default_dtype(torch.float32)
    fast(torch.ones(2))
    assert [found.holds() for found in fast.specializations] == [True]
