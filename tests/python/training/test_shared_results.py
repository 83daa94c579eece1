# SPDX-License-Identifier: Apache-2.0
"""Results that are views of one another, where gradients are enabled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

import hostjit
from hostjit.capturing.capture import capture

LAYER = torch.nn.Linear(6, 6)


def whole_and_part(y: Tensor) -> Any:
    return y, y[:, :2]


def parts(y: Tensor) -> Any:
    return {"policy": y[:, :-1], "value": y[:, -1]}


def pieces(y: Tensor) -> Any:
    return y.chunk(2, -1)


def views_of_views(y: Tensor) -> Any:
    part = y[1:]
    return part, [part.T, part.flatten()[3:]], y.view(-1)


def written_before(y: Tensor) -> Any:
    part = y[:, 1:]
    part += 1
    return part, y


def detached(y: Tensor) -> Any:
    return y, y.detach()


def complex_views(y: Tensor) -> Any:
    z = torch.view_as_complex(y.view(4, 3, 2))
    return y, z


def twice(y: Tensor) -> Any:
    part = y[0]
    return part, y, part


FUNCTIONS = [
    whole_and_part,
    parts,
    pieces,
    views_of_views,
    written_before,
    detached,
    complex_views,
    twice,
]
IN_A_PROGRAM = [whole_and_part, parts, views_of_views, written_before]


class Holder:
    """Keeps the results of its last call."""

    def __init__(self) -> None:
        self.kept: Any = None


def kept_by(share: Callable[..., Any]) -> Callable[..., Any]:
    """The results are stored in an object, too: its bytecode runs around the graph."""
    holder = Holder()

    def function(x: Tensor) -> Any:
        holder.kept = results = share((x * 2).sin())
        return results

    return function


def without_gradients(share: Callable[..., Any]) -> Callable[..., Any]:
    """The views are made where no gradients are recorded, and given where they are."""

    @torch.no_grad()
    def function(x: Tensor) -> Any:
        return share(LAYER(x).sin())

    return function


def in_parts(share: Callable[..., Any]) -> Callable[..., Any]:
    """The results get to the code behind a break."""

    def function(x: Tensor) -> Any:
        results = share((x * 2).sin())
        print(end="")
        return results

    return function


def of_an_inner_tensor(y: Tensor) -> Any:
    """An operator returns a view of a tensor that it keeps to itself."""
    q = torch.quantile(y, torch.tensor([0.1, 0.9]), dim=0)
    return q[0], q[1]


def facts(results: Any) -> list[Any]:
    return [
        (r.shape, r.stride(), r.storage_offset(), r.requires_grad, r.is_leaf, r._is_view())
        for r in tree_leaves(results)
    ]


@pytest.fixture(params=[False, True], ids=["plain", "with a parameter"])
def make(request: pytest.FixtureRequest) -> Callable[[Tensor], Tensor]:
    return (lambda x: LAYER(x).sin()) if request.param else (lambda x: (x * 2).sin())


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("share", FUNCTIONS)
def test_as_eager(share: Callable[..., Any], make: Callable[..., Any], runtime: str) -> None:
    """Also when one of the results is changed in place and has a gradient by that."""

    def function(x: Tensor) -> Any:
        return share(make(x))

    torch.manual_seed(0)
    fast = hostjit.compile(function, runtime=runtime)
    for index in (0, 1):
        x = torch.randn(4, 6)
        weight = torch.randn((), requires_grad=True)
        outcomes = []
        for call in (function, fast):
            results = call(x)
            before = facts(results)
            leaves = tree_leaves(results)
            versions = [leaf._version for leaf in leaves]
            message = ""
            try:
                leaves[index].mul_(weight)
            except RuntimeError as error:
                message = str(error).split(".")[0]
            total = sum(leaf.abs().square().sum() for leaf in leaves)
            gradients = (None, None)
            if total.requires_grad:
                wanted = (weight, LAYER.weight)
                gradients = torch.autograd.grad(total, wanted, allow_unused=True)
            written = [leaf._version > old for leaf, old in zip(leaves, versions, strict=True)]
            outcomes.append((results, before, facts(results), message, gradients, written))
        expected, found = outcomes
        if share is pieces and before[0][3]:
            continue  # tensors of their own, which may be written: PyTorch refuses it
        assert_close(found[0], expected[0])
        assert found[1:4] == expected[1:4]
        assert found[5] == expected[5]
        assert_close(found[4], expected[4])


def outcome(call: Callable[..., Any], x: Tensor, index: int) -> list[Any]:
    """What becomes of the results when one of them is written and has a gradient by that."""
    weight = torch.tensor(1.5, requires_grad=True)
    results = call(x)
    before = facts(results)
    leaves = tree_leaves(results)
    try:
        leaves[index].mul_(weight)
        total = sum(leaf.abs().square().sum() for leaf in leaves)
    except RuntimeError as error:
        return [before, str(error).split(".")[0], [leaf.detach() for leaf in leaves]]
    return [before, facts(results), leaves, torch.autograd.grad(total, weight)]


@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("around", [kept_by, without_gradients, in_parts])
@pytest.mark.parametrize("share", [*IN_A_PROGRAM, pieces, of_an_inner_tensor])
def test_around_the_views(
    share: Callable[..., Any], around: Callable[..., Any], runtime: str
) -> None:
    """Nothing of it runs eagerly, and autograd knows the views as those of eager mode."""
    function = around(share)
    torch.manual_seed(0)
    fast = hostjit.compile(function, runtime=runtime)
    for index in (0, 1, 0, 1):
        x = torch.randn(4 + index, 6)
        expected, found = outcome(function, x, index), outcome(fast, x, index)
        assert found[:2] == expected[:2]
        assert_close(found[2:], expected[2:])


@pytest.mark.parametrize("share", IN_A_PROGRAM)
def test_is_compiled(share: Callable[..., Any], make: Callable[..., Any]) -> None:
    program = capture(lambda x: share(make(x)), (torch.randn(4, 6),))
    assert not program.needs_bytecode and not program.composed


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_results_that_are_one_object(needs_gradient: bool, runtime: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x.sin()
        return y, y.float(), y[1:], y.contiguous() * 2, y.contiguous()

    fast = hostjit.compile(function, runtime=runtime, fallback=False)
    for _ in range(3):
        x = torch.randn(3, requires_grad=needs_gradient)
        found, expected = fast(x), function(x)
        assert found[0] is found[1] is found[4]
        torch.testing.assert_close(found, expected)
        if needs_gradient:
            gradients = [torch.autograd.grad(sum(r.sum() for r in y), x) for y in (found, expected)]
            torch.testing.assert_close(*gradients)
        found[1].detach().zero_()
        assert not found[2].any()


def broadcast(y: Tensor) -> tuple[Tensor, Tensor]:
    first, second = y.chunk(2, -1)
    return first, torch.broadcast_tensors(first, second.exp())[0]


@pytest.mark.parametrize("share", [broadcast, lambda y: (y[1:], y[1:].expand(2, 6))])
def test_results_that_are_kept_in_a_dict(share: Callable[[Tensor], Any]) -> None:
    def keep(kept: dict[str, Tensor], x: Tensor) -> None:
        kept["one"], kept["other"] = share(LAYER(x))

    fast = hostjit.compile(keep, fallback=True)
    for _ in range(3):
        x, found, expected = torch.randn(3, 6), {}, {}
        fast(found, x)
        keep(expected, x)
        assert found["other"].stride() == expected["other"].stride()
        shared = [kept["one"].data_ptr() == kept["other"].data_ptr() for kept in (found, expected)]
        assert shared[0] == shared[1]
        assert_close(found["other"], expected["other"])
