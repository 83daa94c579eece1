# SPDX-License-Identifier: Apache-2.0
"""Captures with open sizes: what stays symbolic, and what was assumed about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hostjit.capturing.capture import capture
from hostjit.capturing.errors import CaptureError
from hostjit.capturing.guards.sizes import size_guard
from hostjit.capturing.opened import Opened
from hostjit.capturing.program import CapturedProgram


def open_capture(function: Callable[..., Any], *args: torch.Tensor) -> CapturedProgram:
    """Capture with all dims open."""
    dims = {leaf: set(range(tensor.dim())) for leaf, tensor in enumerate(args)}
    with torch.no_grad():
        return capture(function, args, {}, Opened(dims))


def shapes(program: CapturedProgram) -> list[str]:
    placeholders = program.graph.find_nodes(op="placeholder")
    return [str(tuple(node.meta["val"].shape)).replace(" ", "") for node in placeholders]


def guard(program: CapturedProgram) -> Callable[[tuple[int, ...]], bool]:
    assert program.environment is not None
    names = dict.fromkeys(
        str(size)
        for node in program.graph.find_nodes(op="placeholder")
        for size in node.meta["val"].shape
        if isinstance(size, torch.SymInt)
    )
    return size_guard(program.environment, list(names))[0]


def test_a_captured_program_runs_at_other_sizes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1, 2).sum(1) + x.shape[1]

    program = open_capture(function, torch.randn(3, 8))
    x = torch.randn(5, 4)
    torch.testing.assert_close(program.run(x), function(x))


def test_sizes_that_must_agree_are_one_symbol() -> None:
    program = open_capture(lambda x, y: x + y, torch.randn(3, 4), torch.randn(3, 4))
    first, second = shapes(program)
    assert first == second
    assert len(set(first.strip("()").split(","))) == 2


def test_sizes_of_at_least_two_are_assumed() -> None:
    accepts = guard(open_capture(torch.relu, torch.randn(3, 4)))
    assert accepts((2, 2))
    assert accepts((1000, 7))
    assert not accepts((1, 2))
    assert not accepts((2, 0))


def test_a_decision_is_assumed() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] * 2 > x.shape[1] + 3 else x

    accepts = guard(open_capture(function, torch.randn(8, 4)))
    assert accepts((4, 4))
    assert not accepts((3, 4))
    assert not accepts((4, 5))


def test_a_divisible_size_is_assumed() -> None:
    accepts = guard(open_capture(lambda x: x.view(-1, 4) + 1, torch.randn(8)))
    assert accepts((12,))
    assert not accepts((13,))


def test_an_argument_without_a_use_keeps_its_place() -> None:
    program = open_capture(lambda x, y: x.relu(), torch.randn(3), torch.randn(4))
    assert len(program.inputs) == 2
    program = open_capture(lambda x, y: x + torch.ones(y.shape[0]), torch.randn(3), torch.randn(3))
    assert len(set(shapes(program))) == 1


def test_sizes_among_the_results_are_those_of_the_call() -> None:
    program = open_capture(lambda x: (x + 1, x.shape[0], len(x) * 2), torch.randn(3))
    for size in (3, 5, 1):
        result, *sizes = program.run(torch.zeros(size))
        torch.testing.assert_close(result, torch.ones(size))
        assert sizes == [size, 2 * size]


class Seen:
    last: torch.Tensor


def test_effects_are_the_bytecodes() -> None:
    seen = Seen()

    def function(x: torch.Tensor) -> torch.Tensor:
        seen.last = x * 2
        return x + 1

    program = open_capture(function, torch.randn(3))
    assert program.needs_bytecode
    assert program.environment is not None
    for size in (3, 5):
        x = torch.randn(size)
        torch.testing.assert_close(program.run(x), x + 1)
        torch.testing.assert_close(seen.last, x * 2)


def test_sizes_that_the_bytecode_does_not_hand_over_are_refused() -> None:
    seen: list[int] = []

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return x + torch.ones(y.shape[0]).sum()

    with pytest.raises(CaptureError, match="does not hand on"):
        open_capture(function, torch.randn(3), torch.randn(4))


def test_sizes_that_depend_on_elements_are_refused() -> None:
    with pytest.raises(CaptureError, match="data-dependent"):
        open_capture(lambda x: x.nonzero() + 1, torch.randn(3))


def test_a_closed_capture_has_no_environment() -> None:
    assert capture(torch.relu, (torch.randn(3),)).environment is None
    x = torch.randn(3)
    torch._dynamo.mark_dynamic(x, 0)
    assert capture(torch.relu, (x,)).environment is None


def test_a_size_that_a_view_must_divide_is_assumed() -> None:
    program = open_capture(lambda x: x.view(x.shape[0], -1, 4) + 1, torch.randn(3, 8))
    accepts = guard(program)
    assert accepts((5, 12))
    assert not accepts((5, 13))
