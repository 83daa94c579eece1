# SPDX-License-Identifier: Apache-2.0
"""Results that are detached views of inputs with gradients need none, however they are compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import hostjit

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "the input": lambda x: x.detach(),
    "its data": lambda x: x.data,
    "a part": lambda x: x.detach()[1:, ::2],
    "of a view": lambda x: x.t().detach(),
}
COMPILERS: dict[str, Callable[[Callable[..., Tensor]], Callable[..., Tensor]]] = {
    "compile": hostjit.compile,
    "capture": hostjit.capture,
    "torch": lambda function: torch.compile(function, backend="hostjit"),
}


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_detached_is_detached(name: str, compiler: str, mode: type, runtime: str) -> None:
    torch._dynamo.reset()
    function = FUNCTIONS[name]
    fast = COMPILERS[compiler](function)
    leaf = torch.linspace(-1, 1, 24, requires_grad=True)
    with hostjit.runtime(runtime):
        for step in range(3):
            x = (leaf * (step + 1)).view(4, 6)
            with mode():
                found, expected = fast(x), function(x)
            assert torch.equal(found, expected)
            assert not found.requires_grad and found.grad_fn is None
            assert found.is_inference() == expected.is_inference()
            assert found.data_ptr() == expected.data_ptr()
            assert found.stride() == expected.stride()
            # One memory, and one version: autograd sees a write of what it has saved.
            loss = x.square().sum()
            found.add_(1)
            assert torch.equal(function(x), found)
            if name == "its data":
                continue
            assert x._version == found._version
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
