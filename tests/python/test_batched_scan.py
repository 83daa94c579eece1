# SPDX-License-Identifier: Apache-2.0
"""`scan` under `torch.vmap`, as eager has it; it has neither `map` nor `while_loop` there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils import _pytree as pytree

import hostjit

FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {}


def example(function: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    FUNCTIONS[function.__name__] = function
    return function


@example
def sums(x: Tensor) -> Any:
    return torch.vmap(lambda r: scan(lambda c, e: (c + e, c * 2), r.sum(), r))(x)


@example
def sums_reversed(x: Tensor) -> Any:
    return torch.vmap(lambda r: scan(lambda c, e: (c + e, c > e), r.sum(), r, reverse=True))(x)


@example
def carries_rows(x: Tensor) -> Any:
    return torch.vmap(lambda r: scan(lambda c, e: (c / 2 + e, c * 2 + r), r, r.outer(r)))(x)


@example
def other_dims(x: Tensor) -> Any:
    def column(r: Tensor) -> Any:
        return scan(lambda c, e: (c / 2 + e, c * 2 + r), r, r.outer(r))

    return torch.vmap(column, in_dims=1, out_dims=1)(x)


@example
def walks_what_all_items_have(x: Tensor) -> Any:
    steps = torch.arange(4.0)
    return torch.vmap(lambda r: scan(lambda c, e: (c + e * r.sum(), c * 2), r.sum(), steps))(x)


@example
def some_results_that_all_items_have(x: Tensor) -> Any:
    w = torch.arange(6.0).reshape(2, 3)
    return torch.vmap(lambda r: scan(lambda c, e: (c + e, (e * 2, c * r)), torch.zeros(3), w))(x)


@example
def two_levels(x: Tensor) -> Any:
    def row(r: Tensor) -> Any:
        return scan(lambda c, e: (c + e, c * 2), r.sum(), r)

    return torch.vmap(torch.vmap(row))(torch.stack([x, x + 1]))


@example
def chooses(x: Tensor) -> Any:
    def step(c: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cond(e > 0, lambda c, e: c + e, lambda c, e: c / 2, (c, e)), c * 2

    return torch.vmap(lambda r: scan(step, r.sum(), r))(x)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_scan_under_vmap(name: str, runtime: str) -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    function = FUNCTIONS[name]
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    with torch.no_grad():
        for rows in (5, 6, 5, 4):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(compiled(x), function(x), check_stride=True)
    assert "for(begin=" in compiled.host_ir()


@pytest.mark.parametrize("name", ["sums", "some_results_that_all_items_have", "chooses"])
def test_gradients(name: str) -> None:
    if name == "some_results_that_all_items_have" and torch.__version__ < (2, 12):
        pytest.skip("a scan whose results share memory with what it carries is refused")
    torch.manual_seed(0)
    torch.compiler.reset()
    function = FUNCTIONS[name]
    compiled = hostjit.compile(function, fallback=False)
    for rows in (5, 6):
        x = torch.randn(rows, 3, requires_grad=True)
        found = []
        for call in (compiled, function):
            leaves = pytree.tree_leaves(call(x))
            found.append(torch.autograd.grad(sum(leaf.square().sum() for leaf in leaves), x))
        torch.testing.assert_close(*found)


def maps(x: Tensor) -> Tensor:
    return torch.vmap(lambda r: map_rows(lambda e: e * 2, r))(x)


def loops(x: Tensor) -> Any:
    return torch.vmap(lambda r: while_loop(lambda r: r.sum() < 9, lambda r: (r + 1,), (r,)))(x)


@pytest.mark.parametrize("function", [maps, loops])
@pytest.mark.filterwarnings("ignore:hostjit. .* runs (eagerly|in parts)")
def test_what_eager_refuses(function: Callable[[Tensor], Any]) -> None:
    torch.compiler.reset()
    x = torch.rand(4, 3)
    with torch.no_grad():
        with pytest.raises(Exception) as expected:
            function(x)
        with pytest.raises(expected.type):
            hostjit.compile(function)(x)
