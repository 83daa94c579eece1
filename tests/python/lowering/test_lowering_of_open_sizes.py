# SPDX-License-Identifier: Apache-2.0
"""Graphs with open sizes as Host IR with symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.capture import capture
from hostjit.capturing.opened import Opened
from hostjit.kernels.sizes import Symbol, as_size
from hostjit.lowering.iteration_space import IterationSpace, Radix
from hostjit.lowering.lower import lower


def lowered(function: Callable[..., Any], *args: torch.Tensor) -> _C.Program:
    """Capture with all dims open, and lower."""
    dims = {leaf: set(range(tensor.dim())) for leaf, tensor in enumerate(args)}
    with torch.no_grad():
        program = capture(function, args, {}, Opened(dims))
    with program.no_more_guards():
        return lower(program.graph, "p")


def names(program: _C.Program) -> list[str]:
    return [op.name for op in program.ops]


def test_sizes_are_read_once_and_first() -> None:
    program = lowered(lambda x, y: x + y, torch.randn(3, 4), torch.randn(3, 4))
    assert names(program)[:2] == ["size", "size"]
    assert names(program).count("size") == 2
    first, second = (value.type for value in program.inputs)
    assert isinstance(first, _C.TensorType)
    assert isinstance(second, _C.TensorType)
    assert first.dims == second.dims


def test_equal_sizes_are_one_index_value() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.cat([x, x]), torch.cat([x + 1, x * 2]).cumsum(0)

    program = lowered(function, torch.randn(3))
    assert names(program).count("index_binary") == 1


def test_what_is_contiguous_is_said_to_be() -> None:
    program = lowered(lambda x: x.relu(), torch.randn(3, 4, 5))
    assert "strides" not in str(program).split("kernel @")[0]


def test_pointwise_work_on_any_shape_is_one_loop() -> None:
    program = lowered(lambda x: x.relu() * 2 + 1, torch.randn(3, 4, 5))
    (text,) = program.kernels.values()
    assert "loop0" in text
    assert "loop1" not in text


def test_neighbours_fuse_at_any_size() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        rows = (x * 2).view(x.shape[0], 2 * x.shape[1], 4).softmax(-1)
        return rows.transpose(0, 1) + 1

    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        program = capture(function, (x,), {}, Opened({0: {0, 1}}))
    with program.no_more_guards():
        assert names(lower(program.graph, "p")).count("launch_kernel") == 1


def test_what_a_view_splits_off_an_open_dim_is_known() -> None:
    program = lowered(lambda x: x.view(x.shape[0], -1, 4) + 1, torch.randn(3, 8))
    (result,) = program.outputs
    assert isinstance(result.type, _C.TensorType)
    assert result.type.dims[2] == 4


def test_sizes_are_operands_of_calls() -> None:
    program = lowered(lambda x: torch.narrow_copy(x, 0, 1, x.shape[0] - 1), torch.randn(5))
    (call,) = [op for op in program.ops if op.name == "aten_call"]
    assert [value.type for value in call.inputs][1:] == ["index"]


def test_a_space_is_split_where_it_is_known_to_divide() -> None:
    n = as_size(Symbol("n"))
    space = IterationSpace.of_shape("x", (n, 8))
    split = space.refined("x", Radix.of_shape((n, 2, 4)))
    assert split is not None
    assert split.sizes == (n, 2, 4)
    assert space.refined("x", Radix.of_shape((2, 4 * n))) is None
    assert space.refined("x", Radix.of_shape((8 * n,))) == space
