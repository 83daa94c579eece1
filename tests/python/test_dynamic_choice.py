# SPDX-License-Identifier: Apache-2.0
"""Which dims are compiled for any size, and how often a callable is compiled."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch._dynamo import decorators
from torch.export import Dim

import hostjit


@pytest.fixture(autouse=True)
def inference() -> Any:
    with torch.no_grad():
        yield


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def programs(compiled: Any, *shapes: tuple[int, ...]) -> int:
    """How many programs calls with these shapes leave behind."""
    for shape in shapes:
        x = torch.randn(shape)
        assert torch.equal(compiled(x), x * 2)
    return len(compiled.specializations)


def test_the_second_size_of_a_dim_makes_it_open() -> None:
    compiled = hostjit.compile(double)
    assert programs(compiled, (4, 8), (5, 8), (6, 8), (100, 8)) == 2
    assert programs(compiled, (4, 9)) == 3
    assert programs(compiled, (7, 10), (8, 11)) == 3


def test_dims_are_closed_on_request() -> None:
    assert programs(hostjit.compile(double, dynamic=False), (4, 8), (5, 8), (6, 8)) == 3


def test_all_dims_are_open_on_request() -> None:
    assert programs(hostjit.compile(double, dynamic=True), (4, 8), (5, 9), (6, 10)) == 1


def test_dims_of_torch_export_are_open_from_the_first_call() -> None:
    batch = Dim("batch", max=64)
    for shapes in ({"x": {0: batch}}, [{0: Dim.AUTO}], ((Dim.DYNAMIC, Dim.STATIC),)):
        compiled = hostjit.compile(double, dynamic=False, dynamic_shapes=shapes)
        assert programs(compiled, (4, 8), (5, 8)) == 1
        assert programs(compiled, (5, 9)) == 2


def test_dims_in_containers_are_named_as_the_containers_are() -> None:
    def function(parts: dict[str, list[torch.Tensor]]) -> torch.Tensor:
        return parts["a"][0] * 2 + parts["a"][1].sum()

    shapes = {"parts": {"a": [{0: Dim.AUTO}, None]}}
    compiled = hostjit.compile(function, dynamic=False, dynamic_shapes=shapes)
    for n in (3, 4):
        parts = {"a": [torch.randn(n), torch.randn(2)]}
        torch.testing.assert_close(compiled(parts), function(parts))
    assert len(compiled.specializations) == 1


def add_all(*args: torch.Tensor, scale: float = 2.0, **rest: torch.Tensor) -> torch.Tensor:
    return (sum(args) + sum(rest.values())) * scale


ADD_ALL_SHAPES: list[Any] = [
    {"args": ({0: Dim.AUTO}, {-2: Dim.AUTO}), "rest": {"z": {0: Dim.AUTO}}},
    {"args": [{0: Dim.AUTO}, {0: Dim.AUTO}], "z": {0: Dim.AUTO}},
    [[{0: Dim.AUTO}, {0: Dim.AUTO}], None, {"z": {0: Dim.AUTO}}],
]


@pytest.mark.parametrize("shapes", ADD_ALL_SHAPES)
def test_dims_of_variadic_arguments(shapes: Any) -> None:
    compiled = hostjit.compile(add_all, dynamic=False, dynamic_shapes=shapes)
    for n in (4, 5, 9):
        x, y, z = torch.randn(3, n, 8).unbind()
        torch.testing.assert_close(compiled(x, y, z=z), add_all(x, y, z=z))
    assert len(compiled.specializations) == 1


@dataclasses.dataclass(frozen=True)
class Pair:
    first: torch.Tensor
    second: torch.Tensor


def test_dims_behind_an_object_of_tensors() -> None:
    def function(pair: Pair, x: torch.Tensor) -> torch.Tensor:
        return pair.first + pair.second.sum() + x.sum()

    compiled = hostjit.compile(function, dynamic=False, dynamic_shapes={"x": {0: Dim.AUTO}})
    for n in (3, 4, 5, 6):
        pair, x = Pair(torch.randn(1, 2), torch.randn(7)), torch.randn(n, 2)
        torch.testing.assert_close(compiled(pair, x), function(pair, x))
    assert len(compiled.specializations) == 2


WRONG_SHAPES: list[tuple[Any, str]] = [
    ({"y": {0: Dim.AUTO}}, "names 'y', expected names of parameters: x"),
    ({"x": {2: Dim.AUTO}}, "names dim 2 of a tensor with 2 dims"),
    ({"x": Dim.AUTO}, "for a tensor, expected a dict or a list"),
    (7, "is 7, expected a dict, list or tuple"),
]


@pytest.mark.parametrize(("shapes", "message"), WRONG_SHAPES)
def test_shapes_that_do_not_fit_the_call(shapes: Any, message: str) -> None:
    with pytest.raises(hostjit.Error, match=message):
        hostjit.compile(double, dynamic_shapes=shapes)(torch.randn(4, 8))


def test_marked_dims_are_open() -> None:
    for mark in (
        torch._dynamo.mark_dynamic,
        torch._dynamo.maybe_mark_dynamic,
        decorators.mark_unbacked,
    ):
        compiled = hostjit.compile(double, dynamic=False)
        x = torch.randn(4, 8)
        mark(x, 0)
        before = dict(vars(x))
        assert torch.equal(compiled(x), x * 2)
        assert vars(x) == before
        assert programs(compiled, (5, 8), (6, 8)) == 1


def test_dims_marked_static_stay_closed() -> None:
    compiled = hostjit.compile(double, dynamic=True)
    for n in (4, 5):
        x = torch.randn(n, 8)
        torch._dynamo.mark_static(x, 0)
        assert torch.equal(compiled(x), x * 2)
    assert len(compiled.specializations) == 2


def test_nothing_of_an_argument_is_changed() -> None:
    x = torch.randn(4, 8)
    hostjit.compile(double, dynamic=True)(x)
    assert not vars(x)


def test_a_replaced_parameter_is_seen_at_any_size() -> None:
    model = torch.nn.Linear(8, 8)
    compiled = hostjit.compile(model, dynamic=True)
    for n in (4, 5):
        x = torch.randn(n, 8)
        torch.testing.assert_close(compiled(x), model(x))
    model.weight = torch.nn.Parameter(torch.randn(8, 8))
    for n in (6, 7):
        x = torch.randn(n, 8)
        torch.testing.assert_close(compiled(x), model(x))


def test_parameters_that_are_arguments_vary() -> None:
    def descend(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            parameter -= 0.5 * gradient
        return parameter.square().sum()

    for dynamic, count in ((None, 2), (True, 1)):
        compiled = hostjit.compile(descend, dynamic=dynamic)
        with torch.enable_grad():
            for n, m in ((3, 4), (4, 5), (5, 6), (9, 9)):
                gradient, values = torch.randn(n, m), torch.randn(n, m)
                ours, theirs = (torch.nn.Parameter(values.clone()) for _ in range(2))
                results = compiled(ours, gradient), descend(theirs, gradient)
                torch.testing.assert_close(*results)
                torch.testing.assert_close(ours, theirs)
                found = (
                    torch.autograd.grad(results[0], ours),
                    torch.autograd.grad(results[1], theirs),
                )
                torch.testing.assert_close(*found)
        assert len(compiled.specializations) == count


def test_other_signatures_are_other_programs() -> None:
    compiled = hostjit.compile(double, dynamic=True)
    assert programs(compiled, (4, 8), (4,), (4, 8, 2), (5,), (3, 3)) == 3
    x = torch.randn(3, 5, dtype=torch.float64)
    assert torch.equal(compiled(x), x * 2)
    assert len(compiled.specializations) == 4


def test_a_call_that_raises_closes_nothing() -> None:
    compiled = hostjit.compile(lambda x, y: x @ y, dynamic=True)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        compiled(torch.randn(3, 4), torch.randn(5, 6))
    for n in (2, 3, 4):
        compiled(torch.randn(3, n), torch.randn(n, 6))
    assert len([found for found in compiled.specializations if found.program]) == 1
