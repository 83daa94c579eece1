# SPDX-License-Identifier: Apache-2.0
"""Gradients that are sparse run eagerly, and hostjit says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit


@pytest.mark.parametrize("way", [hostjit.compile, hostjit.capture])
def test_an_embedding_with_sparse_gradients(way: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    ours, eager = nn.Embedding(10, 4, sparse=True), nn.Embedding(10, 4, sparse=True)
    eager.load_state_dict(ours.state_dict())

    def step(layer: nn.Embedding) -> Callable[[Tensor], Tensor]:
        def call(x: Tensor) -> Tensor:
            loss = layer(x).square().sum()
            loss.backward()
            return loss.detach()

        return call

    fast = way(step(ours))
    calls = [torch.tensor(places) for places in ([1, 2], [1, 1], [3, 9], [0, 2])]
    with pytest.warns(UserWarning, match=r"sparse tensor|tensor is sparse"):
        found = [fast(x) for x in calls]
    assert_close(found, [step(eager)(x) for x in calls])
    assert ours.weight.grad is not None and eager.weight.grad is not None
    assert_close(ours.weight.grad.to_dense(), eager.weight.grad.to_dense())


def test_the_message_names_it() -> None:
    layer = nn.Embedding(10, 4, sparse=True)
    fast = hostjit.compile(lambda x: layer(x).sum())
    with pytest.warns(UserWarning, match="a tensor is sparse, such as a gradient of nn.Embedding"):
        fast(torch.tensor([1, 2])).backward()
