# SPDX-License-Identifier: Apache-2.0
"""What is fused with reductions, and what is not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from run_schedule import check, names

from hostjit.lowering.grouping import PointwiseGroup

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_reductions_of_the_same_rows_are_one_kernel() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = x * y
        return z.sum(1), z.amax(1, keepdim=True) + 1, x.mean(1)

    items = check(function, torch.randn(4, 6), torch.randn(4, 6))
    assert names(items) == [["mul", "sum_1", "amax", "add", "mean"]]


def test_values_per_row_meet_their_elements() -> None:
    def function(x: Tensor) -> Tensor:
        shifted = x - x.amax(-1, keepdim=True)
        power = shifted.exp()
        return power / power.sum(-1, keepdim=True)

    items = check(function, torch.randn(2, 3, 8))
    assert names(items) == [["amax", "sub", "exp", "sum_1", "div"]]
    items = check(lambda x: x / x.t().sum(1), torch.randn(4, 4))
    assert names(items) == [["sum_1"], ["div"]]


def test_rows_of_other_dimensions_are_kernels_of_their_own() -> None:
    items = check(lambda x: (x.sum(0), x.sum(1), x.sum()), torch.randn(4, 6))
    assert names(items) == [["sum_1"], ["sum_2"], ["sum_3"]]
    items = check(lambda x: x.sum(2).sum(1), torch.randn(4, 6, 3))
    assert names(items) == [["sum_1"], ["sum_2"]]


def test_several_results_of_a_norm() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        out, mean, inverse = torch.native_layer_norm(x, (6,), None, None, 1e-5)
        return torch.relu(out), mean * 2, inverse

    items = check(function, torch.randn(2, 4, 6))
    (group,) = items
    assert isinstance(group, PointwiseGroup)
    assert [node.name for node in group.outputs] == ["getitem_2", "relu", "mul"]


def test_a_channel_operand_is_not_taken_for_a_trailing_one() -> None:
    """The statistics are per row of the last dimension, and belong to the second."""

    def function(x: Tensor) -> Tensor:
        total = x.sum((0, 1, 2))
        return F.batch_norm(x, total, total * total + 1)

    items = check(function, torch.randn(2, 4, 4, 4))
    assert len(items) >= 2


def test_a_norm_whose_operands_are_computed() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return F.layer_norm(torch.relu(x), (6,), w * 2, w + 1)

    for rows in (1, 4):
        check(function, torch.randn(rows, 6), torch.randn(6))


def test_a_long_row_is_left_before_its_elements_are_met_again() -> None:
    """Then each of the two kernels has work for several threads."""
    assert names(check(lambda x: x / x.sum(), torch.rand(300, 300))) == [["sum_1"], ["div"]]
    assert names(check(lambda x: x / x.sum(), torch.rand(30, 30))) == [["sum_1", "div"]]
