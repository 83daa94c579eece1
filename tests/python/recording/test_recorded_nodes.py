# SPDX-License-Identifier: Apache-2.0
"""Recorded operators that the functional graph has as they are: as PyTorch's own functionalisation.

Each program is traced in both ways, to one graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit.capturing.functional import recorded_nodes, trace
from hostjit.recording.programs import program as program_module

W = torch.linspace(-1, 1, 16).view(4, 4)


def chain(x: Tensor) -> Tensor:
    return (torch.tanh(x @ W) * 2 + x).sum(0).exp()


def views(x: Tensor) -> Tensor:
    a, b, c, d = x * 2
    first, second = torch.relu(x + 1).split(2)
    rows = torch.stack([a + b, c * d]).t()
    return rows[1:, 0] + first.view(-1)[:3] + second.unsqueeze(0)[0, 1, 1:].expand(3)


def views_of_inputs(x: Tensor) -> Tensor:
    return x.t() @ W[1:, :2].sum(1).expand(4, 3) + W.t()[:, 1:]


def writes(x: Tensor) -> Tensor:
    y = x * 2
    z = y[0]
    y.add_(1)
    z.mul_(3)
    return y + z


def writes_to_what_it_is_given_by_name(x: Tensor) -> Tensor:
    values, places = torch.zeros(4), torch.zeros(4, dtype=torch.int64)
    before = values + 1
    torch.max(x, 0, out=(values, places))
    product = torch.zeros(4, 4)
    torch.mm(x, W, out=product)
    return before + values * places + product


def writes_behind_reads(x: Tensor) -> Tensor:
    y = x.exp()
    before = y * 2
    y[1:].zero_()
    return before - y + x.sin()


def writes_to_inputs(x: Tensor) -> Tensor:
    total = x.sum()
    x.mul_(0.5)
    return total + (x * 2).sum()


def views_of_written_inputs(x: Tensor) -> Tensor:
    row = x[0]
    x.add_(1)
    return row * 2


def results_that_share(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y, y[1]


def views_of_inputs_as_results(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[1], (x * 2)[0]


def what_is_taken_apart(x: Tensor) -> Tensor:
    y = torch.nn.functional.layer_norm(x * 2, (4,))
    y = torch.nn.functional.linear(y, W, W[0])
    return torch.nn.functional.softmax(y, -1) + torch.nn.functional.gelu(x)


def bools(x: Tensor) -> Tensor:
    return ((x > 0) ** True) | ((x * x) ** 2 > 0.5)


def with_an_empty_one(x: Tensor) -> Tensor:
    return torch.cat([x[:0] * 2, x + 1]).view(2, 1, 8)


def draws(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x * 2, 0.5) + torch.rand_like(x).sum()


def other_types(x: Tensor) -> Tensor:
    return (x * 2).to(torch.float64).int() + torch.ones(4, dtype=torch.int32)


def reads(x: Tensor) -> Tensor:
    if (x.abs() * 2).sum() > 1:
        return x * 3
    return x


def trains(x: Tensor) -> Tensor:
    weight = W.clone().requires_grad_()
    loss = torch.tanh(x @ weight).square().mean()
    loss.backward()
    assert weight.grad is not None
    return weight.detach() - 0.1 * weight.grad


PROGRAMS = [
    *(chain, views, views_of_inputs, writes, writes_behind_reads, writes_to_inputs),
    writes_to_what_it_is_given_by_name,
    *(views_of_written_inputs, results_that_share, views_of_inputs_as_results),
    *(what_is_taken_apart, bools, with_an_empty_one, draws, other_types, reads, trains),
]


def described(graph: torch.fx.Graph) -> list[Any]:
    """What each node of a functional graph does, and what its result is like."""
    numbers = {node: index for index, node in enumerate(graph.nodes)}
    memory: dict[int, int] = {}

    def of_value(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [*map(of_value, value)]
        if not isinstance(value, Tensor):
            return value
        storage = memory.setdefault(value.untyped_storage()._cdata, len(memory))
        layout = tuple(value.shape), value.stride(), value.dtype, value.device
        return *layout, storage, value.requires_grad

    return [
        (
            *(node.op, node.target if node.op == "call_function" else None),
            torch.fx.map_arg((node.args, node.kwargs), lambda x: f"node {numbers[x]}"),
            of_value(node.meta.get("val")),
        )
        for node in graph.nodes
    ]


@contextlib.contextmanager
def traced_in_both_ways() -> Iterator[list[int]]:
    """Compare each trace with that of the same graph without what was recorded of results."""
    counts: list[int] = []

    def in_both_ways(module: torch.fx.GraphModule, inputs: Any, mode: Any, **given: Any) -> Any:
        other = torch._subclasses.FakeTensorMode()
        copy = torch.fx.Graph()
        nodes: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in module.graph.nodes:
            nodes[node] = copy.node_copy(node, lambda old: nodes[old])
        plain = torch.fx.GraphModule(module, copy)
        expected = trace.trace_functional(plain, inputs, other)
        with mock.patch.object(
            recorded_nodes.RecordedNodes, "write", autospec=True,
            side_effect=recorded_nodes.RecordedNodes.write,
        ) as write:  # fmt: skip
            found = trace.trace_functional(module, inputs, mode, **given)
        counts.append(write.call_count)
        assert described(found.graph_module.graph) == described(expected.graph_module.graph)
        assert (found.mutated, found.unshifted) == (expected.mutated, expected.unshifted)
        return found

    with mock.patch.object(program_module, "trace_functional", in_both_ways):
        yield counts


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_both_are_one_graph(program: Callable[..., Any]) -> None:
    draw = torch.Generator().manual_seed(0)
    recorded = hostjit.capture(program, fallback=False)
    with traced_in_both_ways() as counts:
        for _ in range(3):
            x = torch.rand(4, 4, generator=draw)
            y = x.clone()
            torch.manual_seed(1)
            found = recorded(x)
            torch.manual_seed(1)
            assert_close((found, x), (program(y), y))
    assert len(counts) == 1


def test_they_are_most() -> None:
    with traced_in_both_ways() as counts:
        recorded = hostjit.capture(trains, fallback=False)
        for _ in range(2):
            recorded(W)
    assert counts[0] > 15
