# SPDX-License-Identifier: Apache-2.0
"""Versions of tensors: a call moves those that eager moves, so that backward passes raise alike."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

Function = Callable[..., Any]


def _compile(function: Function, runtime: str) -> Function:
    return hostjit.compile(function, runtime=runtime, fallback=False)


def _torch_compile(function: Function, runtime: str) -> Function:
    return torch.compile(function, backend="hostjit", options={"runtime": runtime})


WAYS = {"compile": _compile, "torch.compile": _torch_compile}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Function:
    torch._dynamo.reset()
    return WAYS[request.param]


def _moves(call: Callable[[], Any], tensors: Sequence[Tensor]) -> list[bool]:
    before = [tensor._version for tensor in tensors]
    call()
    return [now._version != was for now, was in zip(tensors, before, strict=True)]


NORMS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "batch": (nn.BatchNorm1d(3), (4, 3)),
    "batch2d": (nn.BatchNorm2d(3, affine=False), (2, 3, 4, 4)),
    "behind": (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU()), (4, 3)),
    "instance": (nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (2, 3, 4)),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_statistics_of_norms(name: str, gradients: bool, way: Function, runtime: str) -> None:
    original, shape = NORMS[name]
    model = copy.deepcopy(original).train()
    fast, buffers = way(model, runtime), list(model.buffers())
    with torch.set_grad_enabled(gradients):
        fast(torch.randn(shape))
        x = torch.randn(shape)
        assert _moves(lambda: fast(x), buffers) == _moves(lambda: model(x), buffers)


def test_averages_of_all_batches(runtime: str) -> None:
    model = nn.BatchNorm1d(3, momentum=None)
    fast, buffers, x = _compile(model, runtime), list(model.buffers()), torch.randn(4, 3)
    fast(x)
    assert _moves(lambda: fast(x), buffers) == _moves(lambda: model(x), buffers)


def test_a_momentum_that_changes(runtime: str) -> None:
    model = nn.BatchNorm1d(3)
    fast, buffers, x = _compile(model, runtime), list(model.buffers()), torch.randn(4, 3)
    for momentum in (0.1, 0.2, 0.3, 0.4):
        model.momentum = momentum
        assert _moves(lambda: fast(x), buffers) == _moves(lambda: model(x), buffers)


def test_a_backward_pass_of_eager_behind_a_compiled_call(way: Function, runtime: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    fast, x = way(model, runtime), torch.randn(4, 3)
    fast(x)
    result = model(x)
    fast(x)
    result.sum().backward()
    assert model[0].weight.grad is not None


def _written(x: Tensor, y: Tensor, empty: Tensor, weight: Tensor) -> Tensor:
    x.data.add_(1)
    x.data[0] = 3
    rest = x.data
    rest[1:].mul_(2)
    y.detach().add_(1)
    empty.add_(1)
    return x * weight + y


@pytest.mark.parametrize("gradients", [False, True])
def test_writes_through_data(gradients: bool, way: Function, runtime: str) -> None:
    fast, weight = way(_written, runtime), torch.ones(3, requires_grad=gradients)
    fast(torch.ones(3), torch.ones(3), torch.ones(0), weight)
    found = []
    for run in (fast, _written):
        tensors = [torch.ones(3), torch.ones(3), torch.ones(0)]
        found.append(_moves(lambda run=run, given=tensors: run(*given, weight), tensors))
    assert found[0] == found[1] == [False, True, True]


def test_a_tensor_written_both_ways(way: Function, runtime: str) -> None:
    def function(x: Tensor) -> None:
        x.data.add_(1)
        x.mul_(2)

    fast, x = way(function, runtime), torch.ones(3)
    fast(x)
    assert _moves(lambda: fast(x), [x]) == [True]


def test_what_was_saved_and_is_overwritten_raises(way: Function, runtime: str) -> None:
    def function(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    fast, weight = way(function, runtime), torch.ones(3, requires_grad=True)
    x = torch.ones(3)
    fast(x, torch.ones(3))
    result = (weight * x).sum()
    fast(x, torch.ones(3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()
