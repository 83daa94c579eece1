# SPDX-License-Identifier: Apache-2.0
"""What CUDA's libraries compute stays one call, on CUDA devices alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cuda_programs import cuda_program, on_cuda, ops_of
from torch import nn

F = torch.nn.functional


def apply(module: nn.Module, *inputs: Any) -> Any:
    return module(*inputs)


def test_convolutions_are_calls() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()).eval()
    ops = ops_of(apply, lambda: (on_cuda(module), torch.empty(2, 3, 8, 8)))
    assert ops == ["aten::convolution", "native_batch_norm_legit_no_training_relu_cuda"]


@pytest.mark.parametrize(
    ("operator", "gates"),
    [(torch.lstm, 4), (torch.gru, 3), (torch.rnn_tanh, 1), (torch.rnn_relu, 1)],
)
@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_networks_are_calls(
    operator: Callable[..., Any], gates: int, batch_first: bool
) -> None:
    def make() -> Any:
        state = torch.empty(1, 2, 16)
        weights = [torch.empty(gates * 16, size) for size in (8, 16)]
        biases = [torch.empty(gates * 16), torch.empty(gates * 16)]
        x = torch.empty((2, 5, 8) if batch_first else (5, 2, 8))
        return x, [state, torch.empty(1, 2, 16)] if gates == 4 else state, [*weights, *biases]

    def run(x: Any, state: Any, weights: Any) -> Any:
        return operator(x, state, weights, True, 1, 0.0, False, False, batch_first)

    (op,) = ops_of(run, make)
    assert op.startswith("aten::") and op.endswith(".input")


def test_dropout_draws_what_eager_draws() -> None:
    x = lambda: (torch.empty(8),)  # noqa: E731
    assert ops_of(lambda x: F.dropout(x, 0.3, True), x) == ["aten::native_dropout"]
    assert ops_of(lambda x: F.dropout(x, 0.0, True), x) == []
    assert ops_of(lambda x: F.dropout(x, 1.0, True), x) == ["mul_cuda"]


def test_random_numbers_are_calls() -> None:
    ops = ops_of(lambda x: torch.rand_like(x) + torch.bernoulli(x), lambda: (torch.empty(8),))
    assert ops == ["aten::rand_like", "aten::bernoulli", "add_cuda"]


def test_statistics_of_norms_have_the_types_of_cuda() -> None:
    def statistics(x: Any, weight: Any, bias: Any) -> Any:
        return torch.ops.aten.native_layer_norm(x, [8], weight, bias, 1e-5)[1:]

    half = torch.float16
    program = cuda_program(
        statistics,
        lambda: (torch.empty(4, 8, dtype=half), *(torch.empty(8, dtype=half) for _ in "wb")),
    )
    assert [output.type.dtype for output in program.outputs] == ["f32", "f32"]
