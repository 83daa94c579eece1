# SPDX-License-Identifier: Apache-2.0
"""Writes of shared elements and unused random numbers, with and without gradients, beside eager."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import hostjit

WAYS: dict[str, Callable[..., Any]] = {
    "compile": hostjit.compile,
    "dynamic": functools.partial(hostjit.compile, dynamic=True),
    "evaluator": functools.partial(hostjit.compile, runtime="evaluator"),
    "backend": functools.partial(torch.compile, backend="hostjit"),
    "capture": hostjit.capture,
}


def windows(x: Tensor, y: Tensor) -> Tensor:
    x = x * 1
    x.unfold(0, 2, 3).mul_(3)
    return x * y


def a_window(x: Tensor, y: Tensor) -> Tensor:
    x = x * 1
    x.unfold(0, 2, 3)[0][0] = 7
    return x * y


def windows_of_an_input(x: Tensor, y: Tensor) -> Tensor:
    y.unfold(0, 2, 3).add_(3)
    return x * 2


def expanded(x: Tensor, y: Tensor) -> Tensor:
    row = x[0] * 1
    with torch.no_grad():
        row.expand(3, row.shape[0]).masked_fill_(row > 0, 0.5)
    return row * y


def twice_in_a_list(x: Tensor, y: Tensor) -> Tensor:
    x = x * 1
    torch._foreach_add_([x, x], 1.0)
    return x * y


def neighbours(x: Tensor, y: Tensor) -> Tensor:
    x = x * 1
    x[1:].add_(x[:-1])
    return x * y


def expanded_input(x: Tensor, y: Tensor) -> Tensor:
    y[0].expand(3, y.shape[1]).masked_fill_(y[0] > 0, -1.0)
    return x * 2


def draws(x: Tensor, y: Tensor) -> Tensor:
    y = y * 1
    y.uniform_(-1, 1)
    torch.nn.functional.dropout(y, 0.3)
    torch.rand_like(x) * x
    torch.randperm(4)
    return torch.where(x > 0, x, 1.0)


FUNCTIONS = [
    windows,
    a_window,
    windows_of_an_input,
    expanded,
    twice_in_a_list,
    neighbours,
    expanded_input,
    draws,
]


def observe(function: Callable[..., Any], needs_gradient: bool, seed: int) -> Any:
    torch.manual_seed(seed)
    x, y = torch.randn(7, 4, requires_grad=needs_gradient), torch.randn(7, 4)
    try:
        result = function(x, y)
    except RuntimeError as error:
        return type(error)
    if needs_gradient:
        (result * torch.arange(result.numel()).reshape(result.shape)).sum().backward()
    return result.detach(), x.detach(), y, x.grad, torch.get_rng_state()


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded tensors")
@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_as_eager(function: Callable[..., Any], way: str, needs_gradient: bool) -> None:
    torch._dynamo.reset()
    fast = WAYS[way](function)
    for seed in range(3):
        found, expected = (observe(f, needs_gradient, seed) for f in (fast, function))
        if isinstance(expected, type):
            assert isinstance(found, type) and issubclass(found, expected)
        else:
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "way", [way for way in WAYS if way != "backend"]
)  # where Dynamo parts them
def test_results_that_are_one_object(way: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(1)
        part = x[1:]
        return part, part.contiguous()

    fast = WAYS[way](function)
    for _ in range(3):
        first, second = fast(torch.randn(3))
        assert first is second


@pytest.mark.filterwarnings("ignore:hostjit")
def test_an_input_whose_elements_share_memory(runtime: str) -> None:
    def function(x: Tensor) -> Tensor:
        x[:, :-1][-1] *= 2
        return x * 2

    for make in (hostjit.compile, hostjit.capture):
        fast = make(function, runtime=runtime)
        for _ in range(3):
            x, y = (torch.arange(4.0).expand(6, 4).clone()[0].expand(6, 4) for _ in range(2))
            torch.testing.assert_close(fast(x), function(y))
            torch.testing.assert_close(x, y)


@pytest.mark.filterwarnings("ignore:hostjit", "ignore:Error detected")
def test_a_recorded_result_whose_backward_pass_raises() -> None:
    def product(x: Tensor) -> Tensor:
        y = x * 2
        return y.mul_(y)

    fast = hostjit.capture(product)
    for _ in range(4):
        result = fast(torch.randn(3, requires_grad=True))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_statistics_of_a_checkpoint_move_twice() -> None:
    """Eager computes the batch norm again in the backward pass, and writes again."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU())
    original = copy.deepcopy(model)
    fast = hostjit.compile(lambda x: checkpoint(model, x, use_reentrant=False))
    x = torch.randn(4, 3)
    with pytest.warns(UserWarning, match="a checkpoint changes a tensor"):
        fast(x).sum().backward()
    fast(x).sum().backward()
    for _ in range(2):
        checkpoint(original, x, use_reentrant=False).sum().backward()
    assert_close(dict(model.named_buffers()), dict(original.named_buffers()))


LISTS: list[Callable[[Tensor], Any]] = [
    lambda t: t.__setitem__([0], 1.0),
    lambda t: t.__setitem__(([0], slice(0, 1)), t[1, 2]),
    lambda t: t.__setitem__((slice(None), [0, 1]), 1.0),
    lambda t: t.__setitem__(([0, 1], [1, 0]), t[2, :2] * 3),
    lambda t: t[:2].__setitem__((slice(None), [2]), 2.0),
    lambda t: t.__setitem__([True, False, True], 0.0),
]


@pytest.mark.parametrize("write", range(len(LISTS)))
@pytest.mark.parametrize("way", ["compile", "backend"])
def test_parts_that_lists_tell(write: int, way: str) -> None:
    """They were taken for views: such functions ran eagerly, where gradients are needed."""

    def function(x: Tensor) -> Tensor:
        t = x * 2
        LISTS[write](t)
        return t.sin()

    if way == "compile":
        fast: Any = hostjit.compile(function, fallback=False)
    else:
        options = {"fallback": False}
        fast = torch.compile(function, backend="hostjit", fullgraph=True, options=options)
    x = torch.arange(9.0).view(3, 3).requires_grad_()
    found, expected = fast(x), function(x)
    assert_close(found, expected)
    gradients = [torch.autograd.grad(each.sum(), x) for each in (found, expected)]
    assert_close(*gradients)
