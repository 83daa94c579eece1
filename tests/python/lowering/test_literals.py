# SPDX-License-Identifier: Apache-2.0
"""Arguments of ATen calls that a program leaves out have the schema's defaults."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import hostjit
from hostjit.lowering.lower import lower

RUNTIMES = ["jit", "evaluator"]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "function",
    [
        lambda: torch.randint(10, (3,)),
        lambda: torch.randint(2, 10, (3,)),
        lambda: torch.randperm(4),
        lambda: torch.tril_indices(3, 3),
        lambda: torch.triu_indices(3, 3),
    ],
)
def test_default_dtypes(function: Callable[[], torch.Tensor], runtime: str) -> None:
    fast = hostjit.compile(function, runtime=runtime)
    torch.manual_seed(0)
    expected = function()
    torch.manual_seed(0)
    found = fast()
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


def test_the_device_of_a_call_is_that_of_its_capture() -> None:
    """Without an index it would be the current one, which may be another at a call."""
    graph = torch.fx.Graph()
    device = {"device": torch.device("cuda")}
    node = graph.call_function(torch.ops.aten.rand.default, ([3],), device)
    with FakeTensorMode():
        node.meta["val"] = torch.empty(3, device="cuda:1")
    graph.output((node,))
    assert "device(cuda:1)" in str(lower(graph, "program"))
