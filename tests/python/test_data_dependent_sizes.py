# SPDX-License-Identifier: Apache-2.0
"""Sizes that depend on the values of tensors: programs go on with the sizes that they find."""

from __future__ import annotations

import gc
import io
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from in_parts import check, counted_captures
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

NOWHERE = io.StringIO()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Masked(nn.Module):
    """Goes on with the rows that a mask leaves, and then with those that a threshold does."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.second = nn.Linear(8, 2)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        kept = self.first(x).tanh()[mask]
        places = (kept.sum(1) > 0).nonzero().squeeze(1)
        return self.second(kept[places]) * 2, places + 1


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_sizes_that_depend_on_values(runtime: str) -> None:
    model = Masked()
    fast = hostjit.compile(model, runtime=runtime)
    with torch.no_grad():
        for count in (5, 3, 5, 1, 0, 7, 4, 6, 2):
            x, mask = torch.randn(8, 3), torch.arange(8) < count
            assert_close(fast(x, mask), model(x, mask))


def test_every_size_that_is_found_is_compiled_once_for_all() -> None:
    def function(x: Tensor) -> Tensor:
        return (x * 2)[x > 0].exp() + 1

    fast = hostjit.compile(function)
    with torch.no_grad():
        for count in (2, 3, 4):
            fast(torch.arange(40.0) - 40 + count)
        with counted_captures() as captures:
            for count in range(5, 40):
                x = torch.arange(40.0) - 40 + count
                assert_close(fast(x), function(x))
    assert captures[0] == 0


def test_parts_between_two_masks_are_compiled_once_for_all() -> None:
    model = Masked()
    fast = hostjit.compile(model)
    generator = torch.Generator().manual_seed(1)

    def call() -> None:
        x = torch.randn(40, 3, generator=generator)
        mask = torch.rand(40, generator=generator) > 0.3
        assert_close(fast(x, mask), model(x, mask))

    with torch.no_grad():
        for _ in range(4):
            call()
        with counted_captures() as captures:
            for _ in range(30):
                call()
    assert captures[0] == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.unique(x.round(), return_counts=True),
        lambda x: (x * 2).masked_select(x > 0) + 1,
        lambda x: torch.where(x > 0)[0] * 2,
        lambda x: torch.argwhere(x + 1 > 0) + 1,
        lambda x: torch.repeat_interleave(x, (x[:, 0] > 0).long(), 0) * 2,
        lambda x: torch.bincount((x > 0).flatten().long()) + 1,
        lambda x: torch.unique_consecutive(x.round()) + 1,
    ],
)
def test_operators_whose_sizes_depend_on_values(function: Callable[..., Any]) -> None:
    with torch.no_grad():
        check(function, *[(torch.randn(4, 3),) for _ in range(4)])


def test_a_replaced_parameter_is_seen() -> None:
    model = Masked()
    fast = hostjit.compile(model)
    x, mask = torch.randn(8, 3), torch.arange(8) < 5
    with torch.no_grad():
        for change in (
            lambda: model.second.weight.mul_(2),
            lambda: setattr(model, "second", nn.Linear(8, 3)),
            lambda: setattr(model.first, "weight", nn.Parameter(torch.randn(8, 3))),
            lambda: model.first.register_forward_hook(lambda module, args, result: result + 1),
            lambda: model.double(),
        ):
            assert_close(fast(x, mask), model(x, mask))
            change()
            x = x.to(model.first.weight.dtype)
            assert_close(fast(x, mask), model(x, mask))


def test_parts_go_away_with_the_function() -> None:
    model = Masked()
    alive = weakref.ref(model)
    fast = hostjit.compile(model)
    names = set(globals())
    with torch.no_grad():
        fast(torch.randn(8, 3), torch.arange(8) < 5)
    del fast, model
    gc.collect()
    assert alive() is None
    assert not [name for name in set(globals()) - names if name.startswith("__resume")]


AT_A_PLACE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a row that is returned too": lambda x, i: ((x * 2)[i].exp() + x.sum(0), x[i]),
    "a view that is returned": lambda x, i: (x[i], x * 3),
    "a view that is written": lambda x, i: (x[i].mul_(2), x.exp().sum()),
    "select": lambda x, i: x.exp().select(0, i) * 2,
    "a factor": lambda x, i: torch.add(x, x.exp(), alpha=i),
}


@pytest.mark.parametrize("name", AT_A_PLACE)
def test_a_place_that_a_tensor_without_dims_tells(name: str) -> None:
    """One program, or parts where an operator takes no open number."""
    calls = [(torch.randn(5, 3), torch.tensor(i)) for i in (2, 1, -1, 4, 0)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fast = check(AT_A_PLACE[name], *calls)
    said = [str(warning.message) for warning in caught]
    assert any("runs in parts" in text for text in said) == (name in ("select", "a factor"))
    if name != "a factor":
        with pytest.raises(IndexError, match=r"out of (range|bounds)"):
            fast(torch.randn(5, 3), torch.tensor(7))


def test_a_written_view_whose_place_varies() -> None:
    """What runs eagerly behind a break is not compiled for the place of the first view."""

    def function(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        y = x[i + 0]
        return y.mul_(2), x.exp().sum()

    check(function, *[(torch.randn(5, 3), torch.tensor(i)) for i in (2, 1, -1, 4, 0)])


def test_a_written_view_whose_place_varies_with_gradients() -> None:
    def function(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        y = x[int(i) : int(i) + 2]
        print("between", file=NOWHERE)
        y.mul_(2)
        return y, x.exp()

    fast = hostjit.compile(function)
    for i in (2, 1, 3, 0):
        values, gradients = torch.randn(5, 3), []
        for call in (fast, function):
            leaf = values.clone().requires_grad_()
            results = call(leaf * 1, torch.tensor(i))
            gradients += [*results, *torch.autograd.grad(sum(map(torch.sum, results)), leaf)]
        assert_close(gradients[:3], gradients[3:])


def written(y: Tensor, x: Tensor) -> Tensor:
    y.mul_(2)
    return x.exp()


def test_a_loop_that_writes_a_view_whose_place_varies() -> None:
    def function(y: Tensor, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        results = []
        for _ in range(2):
            print("between", file=NOWHERE)
            results.append(written(y, x))
        return y, results

    fast = hostjit.compile(function)
    for i in (2, 1, 3, 0, 2, 1, 3, 0):
        values, found = torch.randn(5, 2), []
        for call in (fast, function):
            x = values.clone().requires_grad_() * 1
            found.append((*call(x[i], x), x))
        assert_close(*found)
