# SPDX-License-Identifier: Apache-2.0
"""Equations that are solved where calls decide: an error is one of calls that come there alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, linalg

import hostjit

Call = Callable[[Tensor], Any]


def matrix(x: Tensor) -> Tensor:
    """One that is singular where the first two numbers are the same."""
    return torch.stack([torch.stack([x[0], x[1]]), torch.stack([x[1], x[0]])])


def newton(x: Tensor) -> Tensor:
    y = x[:2]
    for _ in range(4):
        if y.norm() < 1:
            break
        y = 0.5 * linalg.solve(matrix(x), matrix(x) @ y)
    return y + 1


def damped(x: Tensor) -> Tensor:
    y = x[:2] * 2
    if x[2] > 0:
        y = linalg.inv(matrix(x)) @ y
    return y + 1


def factorized(x: Tensor) -> Tensor:
    y = x[:2]
    for _ in range(3):
        if y.norm() < 1:
            break
        factor = linalg.cholesky(matrix(x))
        y = 0.5 * torch.cholesky_solve(factor @ (factor.mT @ y[:, None]), factor)[:, 0]
    return y * 2


class Solver:
    """Keeps what it has found for the next call."""

    def __init__(self) -> None:
        self.found = torch.ones(2)

    def __call__(self, x: Tensor) -> Tensor:
        y = self.found * x[3]
        for _ in range(5):
            rest = x[:2] - matrix(x) @ y
            if rest.norm() < 1e-3:
                break
            y = y + 0.9 * linalg.solve(matrix(x), rest)
        self.found = y
        return y


ENTERED = torch.tensor([3.0, 1.0, 1.0, 1.0])
LEFT = torch.tensor([0.5, 0.25, -1.0, 0.1])
SINGULAR_AND_LEFT = torch.tensor([0.5, 0.5, -1.0, 0.1])
SINGULAR_AND_ENTERED = torch.tensor([3.0, 3.0, 1.0, 1.0])
CALLS = [
    *(ENTERED, ENTERED * 1.5, LEFT, ENTERED, SINGULAR_AND_LEFT, LEFT, SINGULAR_AND_ENTERED),
    *(ENTERED, SINGULAR_AND_LEFT, SINGULAR_AND_ENTERED, LEFT, ENTERED),
]


def _outcome(call: Call, x: Tensor) -> tuple[Tensor, str]:
    try:
        return call(x), ""
    except linalg.LinAlgError as error:
        return torch.zeros(2), str(error)


def _compare(call: Call, eager: Call) -> list[str]:
    """Compare calls, and return the errors."""
    errors = []
    for x in (*CALLS, *CALLS):
        (found, error), (expected, expected_error) = _outcome(call, x), _outcome(eager, x)
        assert error == expected_error
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
        errors.append(error)
    return errors


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("make", [hostjit.capture, hostjit.compile])
@pytest.mark.parametrize("program", [newton, damped, factorized])
@pytest.mark.filterwarnings("ignore:hostjit")
def test_errors_are_those_of_calls_that_come_there(
    program: Call, make: Callable[..., Call], runtime: str
) -> None:
    errors = _compare(make(program, runtime=runtime), program)
    assert sum(map(bool, errors)) == 4


@pytest.mark.parametrize("program", [newton, damped, factorized])
def test_one_recording_is_for_calls_that_leave_and_others(program: Call) -> None:
    fast = hostjit.capture(program, fallback=False)
    for x in (ENTERED, ENTERED, ENTERED, SINGULAR_AND_LEFT, LEFT, ENTERED * 2, LEFT):
        torch.testing.assert_close(fast(x), program(x), rtol=1e-4, atol=1e-4)
    assert len(fast.specializations) <= 2  # one more for a call that runs another pass


@pytest.mark.parametrize("make", [hostjit.capture, hostjit.compile])
@pytest.mark.filterwarnings("ignore:hostjit")
def test_what_is_kept_for_the_next_call(make: Callable[..., Call]) -> None:
    eager, program = Solver(), Solver()
    assert any(_compare(make(program), eager))
    torch.testing.assert_close(program.found, eager.found, rtol=1e-3, atol=1e-3)
