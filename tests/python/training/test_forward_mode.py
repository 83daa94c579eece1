# SPDX-License-Identifier: Apache-2.0
"""Forward-mode derivatives: calls with dual numbers run eagerly."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

import hostjit


@pytest.mark.parametrize("warm", [False, True])
def test_forward_mode_derivatives_are_eagers(warm: bool) -> None:
    model = nn.Linear(3, 2)
    fast = hostjit.compile(model)
    x, tangent = torch.randn(4, 3), torch.randn(4, 3)
    if warm:
        fast(x)
    with forward_ad.dual_level():
        expected = forward_ad.unpack_dual(model(forward_ad.make_dual(x, tangent)))
        found = forward_ad.unpack_dual(fast(forward_ad.make_dual(x, tangent)))
    torch.testing.assert_close(found.primal, expected.primal)
    torch.testing.assert_close(found.tangent, expected.tangent)
    torch.testing.assert_close(fast(x), model(x))


def test_forward_mode_derivatives_by_a_parameter() -> None:
    scale = torch.randn(3)
    fast = hostjit.compile(lambda x: x * scale)
    x = torch.randn(3)
    fast(x)
    with forward_ad.dual_level():
        scale = forward_ad.make_dual(scale, torch.ones(3))
        assert_close = torch.testing.assert_close
        assert_close(forward_ad.unpack_dual(fast(x)).tangent, x)
