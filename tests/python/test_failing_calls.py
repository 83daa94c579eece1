# SPDX-License-Identifier: Apache-2.0
"""Calls that fail: assertions about tensors, and what a call changes before an operator raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from failing_steps import Checked, Decomposed, InHelper, Logging, Module, SafeStop, WithText
from torch import Tensor

import hostjit

GOOD, BAD = torch.eye(2), torch.full((2, 2), torch.nan)


def outcomes(owner: Any, step: Callable[[Tensor], Tensor]) -> list[Any]:
    found: list[Any] = []
    for x in (GOOD, GOOD, 3 * GOOD, BAD, GOOD, -GOOD, GOOD):
        try:
            found.append(step(x).detach())
        except (AssertionError, RuntimeError) as error:
            found.append((type(error), str(error)))
        found.append((owner.faults, len(owner.log), owner.state.detach().clone()))
    return found


def same(found: list[Any], expected: list[Any]) -> None:
    torch.testing.assert_close(
        [x for x in found if isinstance(x, Tensor)],
        [x for x in expected if isinstance(x, Tensor)],
    )
    for ours, eagers in zip(found, expected, strict=True):
        assert type(ours) is type(eagers)
        if isinstance(eagers, tuple):
            assert ours[:2] == eagers[:2]
            torch.testing.assert_close(ours[2:], eagers[2:], equal_nan=True)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    "kind", [SafeStop, Checked, WithText, InHelper, Decomposed, Logging, Module]
)
def test_they_leave_what_eager_leaves(kind: Any, gradients: bool) -> None:
    torch.manual_seed(0)
    eager = kind()
    torch.manual_seed(0)
    ours = kind()
    with torch.set_grad_enabled(gradients):
        same(outcomes(ours, hostjit.compile(ours.step)), outcomes(eager, eager.step))


@pytest.mark.parametrize("kind", [SafeStop, WithText, InHelper])
def test_assertions_through_torch_compile(kind: Any) -> None:
    ours, eager = kind(), kind()
    fast = torch.compile(ours.step, backend="hostjit")
    same(outcomes(ours, fast), outcomes(eager, eager.step))


def test_an_operator_that_asserts_raises_what_it_raises() -> None:
    def function(x: Tensor) -> Tensor:
        torch._assert_async(torch.isfinite(x).all(), "not finite")
        return x * 2

    fast = hostjit.compile(function)
    torch.testing.assert_close(fast(GOOD), 2 * GOOD)
    with pytest.raises(RuntimeError, match="not finite"):
        fast(BAD)
