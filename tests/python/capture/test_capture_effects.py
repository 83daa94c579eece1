# SPDX-License-Identifier: Apache-2.0
"""Writes, views, random numbers and other effects of captured programs are eager's."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from eager_comparison import assert_same, check, operators
from no_warnings import no_warnings
from torch import nn
from torch.testing import assert_close

import hostjit
from hostjit.capturing.capture import capture
from hostjit.capturing.program import BoundTensor


def test_input_mutation() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        y[0] = 5
        return x * y

    program = check(function, torch.randn(3), torch.randn(3))
    assert len(program.mutated_inputs) == 2 and program.requires_disjoint_inputs
    assert operators(program)[-2:] == ["aten.copy_.default"] * 2


def test_a_mutated_input_returned_is_the_input() -> None:
    program = check(lambda x: (x.add_(1), x.mul_(2)), torch.randn(3))
    x = torch.randn(3)
    first, second = program.run(x)
    assert first is x and second is x


def test_views_of_a_mutated_input_share_its_memory() -> None:
    def function(x: torch.Tensor) -> Any:
        view = x[1:].view(-1)
        x.mul_(3)
        return view, x.t()

    program = check(function, torch.randn(3, 3))
    x = torch.randn(3, 3)
    view, transposed = program.run(x)
    x.zero_()
    assert view.eq(0).all() and transposed.eq(0).all()


def test_results_that_share_memory_still_do() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x * 2
        view = y[0]
        view.add_(1)
        return y, view

    program = check(function, torch.randn(2, 2))
    y, view = program.run(torch.randn(2, 2))
    view.zero_()
    assert y[0].eq(0).all()


def test_out_argument() -> None:
    def function(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.add(x, 1, out=out)

    check(function, torch.randn(3), torch.zeros(3))


def test_batch_norm_in_training_updates_its_buffers() -> None:
    model = nn.BatchNorm1d(4).train()
    reference = copy.deepcopy(model)
    x = torch.randn(8, 4)
    with torch.no_grad():
        program = capture(model, (x,))
        assert_same(dict(model.named_buffers()), dict(reference.named_buffers()))
        assert_same(program.run(x), reference(x))
    assert_same(dict(model.named_buffers()), dict(reference.named_buffers()))
    assert program.mutated_inputs


def test_random_operators_keep_their_order() -> None:
    def function(x: torch.Tensor) -> Any:
        noise = torch.rand(3)
        torch.randn(2)
        return F.dropout(x, 0.5, training=True) + noise, torch.randn_like(x).normal_(2, 3)

    program = check(function, torch.randn(3))
    assert program.random


def test_constants_are_lifted() -> None:
    table = torch.arange(3.0)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 2.0, 3.0]) + table

    program = check(function, torch.randn(3))
    bound = [b for b in program.inputs if isinstance(b, BoundTensor)]
    assert [b.is_constant for b in bound] == [False, True]
    assert bound[0].tensor is table


def test_python_effects_need_the_bytecode() -> None:
    log: list[torch.Tensor] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        log.append(x + 1)
        return x * 2

    x = torch.randn(3)
    with torch.no_grad():
        program = capture(function, (x,))
        assert program.needs_bytecode and "list" in program.bytecode_reason
        assert not log
        assert_same(program.run(x), x * 2)
    assert_same(log, [x + 1])


def test_an_attribute_set_by_forward_needs_the_bytecode() -> None:
    class Model(nn.Module):
        last: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = x * 3
            return x + 1

    model = Model()
    x = torch.randn(3)
    program = capture(model, (x,))
    assert program.needs_bytecode and model.last is None
    assert_same(program.run(x), x + 1)
    assert_same(model.last, x * 3)


COUNTER = 0


def test_a_global_written_by_the_call_is_stored_without_the_bytecode() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        global COUNTER
        COUNTER += 1
        return x + 1

    program = capture(function, (torch.randn(3),))
    assert not program.needs_bytecode and COUNTER == 0
    fast = hostjit.compile(function)
    fast(torch.randn(3))
    assert COUNTER == 1
    fast(torch.randn(3))
    assert COUNTER == 2


def test_the_same_tensor_twice() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    x = torch.randn(3)
    with torch.no_grad():
        program = capture(function, (x, x))
    assert program.argument_spec.identity_groups == ((0, 1),)
    a = torch.ones(3)
    assert_same(program.run(a, a), torch.full((3,), 4.0))
    assert not program.argument_spec.matches((x, x.clone()), {})


def test_an_argument_that_is_a_parameter() -> None:
    model = nn.Linear(3, 3)

    def function(weight: torch.Tensor) -> torch.Tensor:
        return weight @ model.weight

    with torch.no_grad():
        program = capture(function, (model.weight,))
    assert [(leaf, t is model.weight) for leaf, t in program.argument_spec.bound_leaves] == [
        (0, True)
    ]


def test_spectral_norm_in_training_updates_its_vectors() -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)).train()

    eager, compiled = make(), make()
    fast = hostjit.compile(compiled, fallback=False)
    with torch.no_grad(), no_warnings():
        for _ in range(3):
            x = torch.randn(2, 3)
            assert_close(fast(x), eager(x))
            assert_close(dict(compiled.state_dict()), dict(eager.state_dict()))
    assert len(fast.specializations) == 1


def test_a_view_that_is_given_with_a_result_to_write_is_part_of_the_program() -> None:
    def divide(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.div(x, x.sum(0, keepdim=True).expand(3), out=out)

    for given in (torch.ones(3), torch.arange(1.0, 4.0)):
        out = torch.empty(3)
        result = capture(divide, (given, out)).run(given, out)
        assert result is out and torch.equal(out, given / given.sum())
