# SPDX-License-Identifier: Apache-2.0
"""Views that are more than another shape of memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from against_eager import RUNTIMES, check_compiled

import hostjit

OVERLAPPING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "expanded": lambda x: x.unsqueeze(1).expand(4, 3, 6),
    "expanded_and_turned": lambda x: x[1:, ::2].expand(2, 3, 3).transpose(0, 2),
    "unfolded": lambda x: x.unfold(1, 3, 2),
}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", OVERLAPPING)
def test_conjugates_of_elements_that_share_memory(name: str, runtime: str) -> None:
    """No copy of an expanded tensor has its strides."""
    x = torch.randn(4, 6, dtype=torch.complex64)
    see = OVERLAPPING[name]
    check_compiled(lambda x: see(x).conj() * 2, x, runtime=runtime, fused=False)
    check_compiled(lambda x: see(x).conj()[1:, 1] + 1, x, runtime=runtime, fused=False)
    check_compiled(lambda x: see(x).conj().imag + 1, x, runtime=runtime, fused=False)


def test_conjugates_of_expanded_tensors_of_any_size() -> None:
    compiled = hostjit.compile(lambda x: x.unsqueeze(0).expand(3, -1).conj() * 2)
    for size in (4, 5, 6):
        x = torch.randn(size, dtype=torch.complex64)
        torch.testing.assert_close(compiled(x), x.conj().expand(3, -1) * 2)


def test_gradients_of_products_over_expanded_complex_numbers() -> None:
    """PyTorch's formula conjugates the operand."""
    x = torch.randn(2, dtype=torch.complex64, requires_grad=True)

    def powers(x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x.unsqueeze(1).expand(2, 4), 1)

    gradients = []
    for function in (powers, hostjit.compile(powers)):
        gradients += torch.autograd.grad(function(x).abs().sum(), x)
    torch.testing.assert_close(gradients[1], gradients[0])
