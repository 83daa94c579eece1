# SPDX-License-Identifier: Apache-2.0
"""Recordings whose results are views of one another, where gradients are enabled."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

import hostjit

pytestmark = pytest.mark.usefixtures("each_runtime")


def _part(x: torch.Tensor) -> Any:
    y = x * 2
    return y, y[:2]


def _views_alone(x: torch.Tensor) -> Any:
    y = x * 2
    return y.view(-1), [y[0], y.t()]


def _written_first(x: torch.Tensor) -> Any:
    y = x * 2
    z = y[1:]
    z.add_(1)
    return {"z": z, "x": x, "all": y.view(-1)}


def _several(x: torch.Tensor) -> Any:
    y = x * 2
    return (*y.split(2), y.exp())


def _beside_views_of_arguments(x: torch.Tensor) -> Any:
    y = x + torch.rand(4, 3)
    return x.view(-1), y, y[:, ::2], x


@pytest.mark.parametrize("prune", [False, True])
@pytest.mark.parametrize(
    "function",
    [_part, _views_alone, _written_first, _several, _beside_views_of_arguments],
)
def test_autograd_knows_the_views(function: Callable[[torch.Tensor], Any], prune: bool) -> None:
    fast = hostjit.capture(function, prune=prune, fallback=False)
    for number in range(6):
        x = torch.randn(4, 3)
        found, expected = (_outcome(call, x.clone(), number) for call in (fast, function))
        assert found[1] == expected[1]
        assert_close(found[0], expected[0])
    assert len(fast.specializations) == 1


def _outcome(function: Callable[[torch.Tensor], Any], x: torch.Tensor, number: int) -> Any:
    """What a call returns, how it shares memory, and what a gradient gets by a write to a part."""
    torch.manual_seed(number)
    results = tree_leaves(function(x))
    values = [result.clone() for result in results]
    shares = [
        a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        for a, b in itertools.combinations(results, 2)
    ]
    facts = [(result.stride(), result._is_view(), result.is_leaf) for result in results]
    factor = torch.full((), 3.0, requires_grad=True)
    try:
        results[number % len(results)].mul_(factor)
        sum(result.square().sum() for result in results).backward()
    except RuntimeError as error:
        return values, (shares, facts, str(error).split(".")[0])
    return [*values, *results, factor.grad], (shares, facts, "")


@pytest.mark.filterwarnings("ignore:hostjit")
def test_one_object_at_two_places_stays_one() -> None:
    def call(x: torch.Tensor) -> Any:
        y = x * 2
        part = y[1]
        return part, part, y

    fast = hostjit.capture(call)
    for _ in range(4):
        first, second, whole = fast(torch.ones(2, 3))
        assert first is second and first._base is whole


def test_they_are_saved(tmp_path: Path) -> None:
    fast = hostjit.capture(_views_alone)
    for _ in range(3):
        fast(torch.ones(4, 3))
    hostjit.save(fast, tmp_path / "views.hostjit")
    loaded = hostjit.load(tmp_path / "views.hostjit")
    for number in range(4):
        x = torch.randn(4, 3)
        found, expected = (_outcome(call, x, number) for call in (loaded, _views_alone))
        assert found[1] == expected[1]
        assert_close(found[0], expected[0])


def test_a_view_of_which_pytorch_tells_no_graph() -> None:
    """It was made without gradients, and its base is changed with them; code may reach it."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    base = torch.zeros(8, requires_grad=True) * 1.0
    with torch.no_grad():
        view = base[:4]
    base.add_(1)
    with pytest.raises(RuntimeError, match="no_grad"):
        _ = view.grad_fn
    optimizer.state[model.weight]["kept"] = view
    kept = [view]

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum() + eval("len(kept)", {"kept": kept})
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = hostjit.capture(step)
    x, weight = torch.randn(2, 4), model.weight.detach().clone()
    for _ in range(4):
        fast(x)
        weight -= 0.1 * x.sum(0)
        torch.testing.assert_close(model.weight.detach(), weight)
