# SPDX-License-Identifier: Apache-2.0
"""What is fused, what is not, and that the results are eager's."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from run_schedule import capture, check, names, run

from hostjit.lowering.grouping import PointwiseGroup, schedule

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_a_chain_is_one_kernel() -> None:
    def function(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.relu(a + b) * c - a

    items = check(function, *torch.randn(3, 16).unbind())
    assert names(items) == [["add", "relu", "mul", "sub"]]
    (group,) = items
    assert isinstance(group, PointwiseGroup)
    assert [node.name for node in group.inputs] == ["a_1", "b_1", "c_1"]
    assert [node.name for node in group.outputs] == ["sub"]


def test_a_view_with_other_strides_of_dimensions_of_one_element_is_fused() -> None:
    items = check(lambda x: torch.relu(x[:, :1].t()).view(1, 1, 4) * 2, torch.randn(4, 6))
    assert names(items) == [["relu", "mul"]]


def test_siblings_that_read_the_same_buffer_are_one_kernel() -> None:
    items = check(lambda x: (x.sin(), x.cos(), x > 0), torch.randn(5, 7))
    assert names(items) == [["sin", "cos", "gt"]]


def test_producers_are_merged_at_their_common_user() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(x) * torch.tanh(y)

    assert names(check(function, torch.randn(6), torch.randn(6))) == [["sigmoid", "tanh", "mul"]]


def test_a_value_used_elsewhere_is_stored_and_not_computed_twice() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(x)
        return y @ w, y + 1

    items = check(function, torch.randn(4, 4), torch.randn(4, 4))
    assert names(items) == [["relu", "add"], "mm"]
    assert isinstance(items[0], PointwiseGroup)
    assert [node.name for node in items[0].outputs] == ["relu", "add"]


def test_no_cycle_through_another_node() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        y = torch.relu(x)
        return y + y @ w

    assert names(check(function, torch.randn(4, 4), torch.randn(4, 4))) == [["relu"], "mm", ["add"]]


def test_no_cycle_by_merging() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        y = torch.relu(x)
        z = torch.sin(y @ w)
        return y + z

    items = check(function, torch.randn(4, 4), torch.randn(4, 4))
    assert names(items) == [["relu"], "mm", ["sin", "add"]]


def test_broadcast_producers_are_kernels_of_their_own() -> None:
    items = check(lambda x, b: x * torch.exp(b), torch.randn(6, 4), torch.randn(4))
    assert names(items) == [["exp"], ["mul"]]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1).t() * 2,
        lambda x: (x + 1).permute(1, 0).unsqueeze(0).sin(),
        lambda x: (x + 1).reshape(2, 2, 6) * 2,
        lambda x: (x + 1).reshape(24).cos(),
        lambda x: (x + 1).reshape(2, 2, 6).permute(2, 0, 1) * 2,
        lambda x: (x + 1).reshape(4, 2, 3).transpose(1, 2) + 1,
        lambda x: (x + 1).view(4, 6, 1).squeeze(-1).expand(4, 6) * 3,
        lambda x: (x + 1).t().contiguous() * 2,
        lambda x: torch.sin(x + 1).t() + torch.cos(x + 1).t(),
        lambda x: (x.reshape(2, 12) * 2).reshape(3, 8) + 1 + (x.reshape(3, 8)),
    ],
)
def test_fusion_through_reorderings(function: Callable[[Tensor], Tensor]) -> None:
    items = check(function, torch.randn(4, 6), exact_strides=True)
    groups = [item for item in items if isinstance(item, PointwiseGroup)]
    assert len(groups) == 1 or "12" in str(function.__code__.co_consts), names(items)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[::2, 1:4] + 1,
        lambda x: x[1] * x[2],
        lambda x: x[:, 3].unsqueeze(1) + x,
        lambda x: x.expand(3, 4, 6) + 1,
        lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1].sigmoid(),
        lambda x: torch.stack([t + 1 for t in x.unbind(0)]),
        lambda x: x.diagonal() * 2,
        lambda x: x.as_strided((3, 2), (1, 2), 1) + 1,
        lambda x: (x + 1)[1:] * (x + 1)[:-1],
        lambda x: x.unfold(1, 3, 1) + 1,
        lambda x: torch.view_as_real(x.to(torch.complex64)) + 1,
        lambda x: (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32) + 0,
        lambda x: F.pad(x, (1, 1)) * 2,
    ],
)
def test_views_are_addresses_of_loads(function: Callable[[Tensor], Tensor]) -> None:
    check(function, torch.randn(4, 6))
    check(function, torch.randn(6, 8).t()[1:5, :6].contiguous())


def test_a_graph_input_with_an_offset_and_strides() -> None:
    base = torch.randn(10, 12)
    view = base[2:6, 1::2]
    module = capture(lambda x: x.t()[1:] * 2 + 1, view)
    items = schedule(module.graph)
    torch.testing.assert_close(run(module, items, view), view.t()[1:] * 2 + 1)
    assert len(items) == 1


def test_as_strided_of_an_input_with_an_offset() -> None:
    base = torch.randn(10, 12)
    view = base[2:6]
    module = capture(lambda x: x.as_strided((2, 3), (12, 1), 24) + 1, view)
    actual = run(module, schedule(module.graph), view)
    torch.testing.assert_close(actual, view.as_strided((2, 3), (12, 1), 24) + 1)


def test_constants_and_arange_are_repeated_where_they_are_used() -> None:
    def function(x: Tensor) -> Tensor:
        mask = torch.arange(6)[None, :] > torch.arange(4)[:, None]
        return torch.where(mask, x, torch.full((), float("-inf")))

    items = check(function, torch.randn(4, 6))
    assert names(items) == [["gt", "where"]]
    assert isinstance(items[0], PointwiseGroup)
    assert [node.name for node in items[0].inputs] == ["x_1"]


def test_constants_that_leave_are_filled_in() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        zeros = torch.zeros(2, 3)
        return zeros, torch.arange(2, 9, 3), torch.ones_like(x), zeros @ x, torch.arange(3.0)

    check(function, torch.randn(3, 2))


def test_writes_keep_their_place() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        before = x * 2
        x.add_(1)
        return before, x * 3

    items = check(function, torch.randn(4))
    assert names(items) == [["mul", "add", "mul_1"], "copy_"]


def test_random_numbers_keep_their_order() -> None:
    def function(x: Tensor) -> Tensor:
        a = torch.rand(4)
        return F.dropout(x * 2, 0.5) + a * torch.rand(4)

    x = torch.randn(4)
    module = capture(function, x)
    torch.manual_seed(5)
    actual = run(module, schedule(module.graph), x)
    torch.manual_seed(5)
    torch.testing.assert_close(actual, function(x))


def test_other_operators_stay() -> None:
    def function(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        return x.cumsum(0) + 1, i // i, x.to(torch.complex64) * 2, x.median()

    items = check(function, torch.randn(5), torch.arange(1, 6))
    assert {"cumsum", "floor_divide", "mul", "median"} <= {n for n in names(items) if n.__hash__}


def test_outputs_that_are_inputs_or_views() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        return x, x.t(), y.t(), y, y[0]

    items = check(function, torch.randn(3, 4))
    assert sorted(map(str, names(items))) == ["['add']", "select", "t", "t_1"]


def test_empty_and_zero_dimensional() -> None:
    check(lambda x: (x + 1).t().sin(), torch.randn(0, 3))
    check(lambda x: x.sum() * 2 + x.mean(), torch.randn(3))
    check(lambda x: x + torch.tensor(2.0, dtype=torch.float64), torch.randn(3))
    check(lambda x: x[:, None] + x[None, :0], torch.randn(3))


def test_halves_are_rounded_after_every_operator() -> None:
    def function(x: Tensor) -> Tensor:
        return (x + 2.0**-10) - 1

    x = torch.ones(4, dtype=torch.bfloat16)
    module = capture(function, x)
    actual = run(module, schedule(module.graph), x)
    assert actual.tolist() == function(x).tolist() == [0.0] * 4
    check(lambda x: x.bfloat16().float() + 1, torch.randn(9))


def test_a_long_chain_is_cut() -> None:
    def function(x: Tensor) -> Tensor:
        for _ in range(150):
            x = torch.sin(x + 0.5)
        return x

    items = check(function, torch.randn(8, dtype=torch.float64))
    assert [len(item.members) for item in items if isinstance(item, PointwiseGroup)] == [64] * 4 + [
        44
    ]


def random_function(number: int) -> Callable[..., tuple[Tensor, ...]]:
    """A function of many small steps on 4x6 and 6x4 tensors, chosen by a seed."""
    choice = random.Random(number)
    steps = [
        (choice.randrange(14), choice.random(), choice.random())
        for _ in range(choice.randint(5, 25))
    ]
    kept = [choice.random() < 0.2 for _ in steps]

    def function(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        values, results = [x, y], []
        for (kind, left, right), keep in zip(steps, kept, strict=True):
            a = values[int(left * len(values))]
            b = values[int(right * len(values))]
            if a.shape != b.shape:
                b = b.t() if left < 0.5 else b.reshape(a.shape)
            new = (
                a + b,
                a * b.tanh(),
                torch.where(a > b, a, b.sin()),
                a.t().sigmoid(),
                a.reshape(2, 12)[:, ::2].sum() + a,
                a @ w if a.shape[1] == 6 else a.t() @ w,
                a.reshape(2, 2, 6).permute(1, 2, 0).reshape(4, 6) - 1,
                a[:1] + b,
                a.softmax(-1) + torch.arange(a.shape[1]),
                a - a.mean(0),
                a * b.amax(1, keepdim=True).sigmoid(),
                (a + b.sum(1, keepdim=True)).t().var(0)[:, None] - b,
                a.reshape(2, 12).sum(1).repeat_interleave(12).reshape(a.shape) * b,
                a.t().sum(1) + b,
            )[kind]
            values.append(new)
            if keep:
                results.append(new)
        return (*results, values[-1])

    return function


@pytest.mark.parametrize("number", range(60))
def test_random_graphs(number: int) -> None:
    x, y = torch.randn(4, 6, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    check(random_function(number), x, y, torch.randn(6, 6, dtype=torch.float64) / 3)
