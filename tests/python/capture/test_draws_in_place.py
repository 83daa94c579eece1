# SPDX-License-Identifier: Apache-2.0
"""Random numbers drawn in place into memory of any order: the same from one seed as eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x * 2,
    "transposed": lambda x: (x * 2).transpose(1, 2),
    "heads": lambda x: (x * 2).view(2, -1, 2, 4).permute(0, 2, 1, 3),
    "with gaps": lambda x: (x * 2)[:, :, ::2],
    "transposed with gaps": lambda x: (x * 2)[:, ::2].transpose(1, 2),
    "channels last": lambda x: (
        (x * 2).view(2, 6, 2, 4).contiguous(memory_format=torch.channels_last)
    ),
}
DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda v: F.dropout(v, 0.5, True, inplace=True),
    "alpha dropout": lambda v: F.alpha_dropout(v, 0.5, True, inplace=True),
    "bernoulli": lambda v: v.detach().bernoulli_(0.3),
    "bernoulli of a tensor": lambda v: v.detach().bernoulli_(torch.full((v.shape[-1],), 0.5)),
    "a mask": lambda v: v * torch.empty_like(v).bernoulli_(0.3),
    "normal": lambda v: v.detach().normal_(1.0, 2.0),
    "uniform": lambda v: v.detach().uniform_(),
    "exponential": lambda v: v.detach().exponential_(),
}
BACKENDS: list[Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]] = [
    hostjit.compile,
    lambda function: torch.compile(function, backend="hostjit"),
]


@pytest.mark.parametrize("compile", BACKENDS, ids=["compile", "torch.compile"])
@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("view", VIEWS)
def test_the_same_numbers(
    view: str,
    draw: str,
    needs_grad: bool,
    compile: Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]],
) -> None:
    def function(x: Tensor) -> Tensor:
        return DRAWS[draw](VIEWS[view](x)) * 3

    torch._dynamo.reset()  # of the code there are as many programs as it has cases
    fast = compile(function)
    found = []
    for each in (function, fast, fast):
        x = torch.ones(2, 6, 8, requires_grad=needs_grad)
        torch.manual_seed(0)
        y = each(x)
        if y.requires_grad:
            y.sum().backward()
        found.append((y.tolist(), y.stride(), None if x.grad is None else x.grad.tolist()))
    assert found[1] == found[0] and found[2] == found[0]
