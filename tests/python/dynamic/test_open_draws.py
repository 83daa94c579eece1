# SPDX-License-Identifier: Apache-2.0
"""Random draws with parameters that vary, such as noise that decays: one program draws as eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

PROGRAMS: dict[str, Callable[[Tensor, float], Any]] = {
    "normal_": lambda x, e: x + torch.empty_like(x).normal_(0, e),
    "normal_of_mean": lambda x, e: x * torch.zeros_like(x).normal_(mean=e),
    "normal": lambda x, e: x + torch.normal(0.0, e, x.shape),
    "normal_of_dtype": lambda x, e: x + torch.normal(e, 2.0, size=x.shape, dtype=torch.float64),
    "uniform_": lambda x, e: x + torch.empty_like(x).uniform_(-e, e),
    "bernoulli_": lambda x, e: x * torch.empty_like(x).bernoulli_(e / 2),
    "exponential_": lambda x, e: x + torch.empty(x.shape).exponential_(e),
    "log_normal_": lambda x, e: x + torch.empty(x.shape).log_normal_(e, 1 + e),
    "written": lambda x, e: (x.normal_(0, e), x.mul_(2))[1],
    "twice": lambda x, e: torch.empty_like(x).normal_(0, e) + torch.empty_like(x).uniform_(0, e),
    "made": lambda x, e: x + torch.empty_like(x).normal_(0, max(0.1, 1 - e / 2)),
    "transposed": lambda x, e: torch.empty_like(x).normal_(0, e).t() * 2,
}


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("sizes", [(5, 3), (40, 9)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_draws_are_those_of_eager(name: str, sizes: tuple[int, int], runtime: str) -> None:
    function = PROGRAMS[name]
    fast = hostjit.compile(function, runtime=runtime)
    for number, e in enumerate((0.5, 0.7, 0.3, 1.3, 0.9)):
        x, y = torch.ones(sizes), torch.ones(sizes)
        torch.manual_seed(number)
        expected, after = function(x, e), torch.get_rng_state()
        torch.manual_seed(number)
        assert_close(fast(y, e), expected, rtol=1e-6, atol=0)
        assert_close(x, y, rtol=1e-6, atol=0)
        assert torch.equal(torch.get_rng_state(), after)
    assert len(fast.specializations) == 2


def test_gradients_flow_past_draws() -> None:
    def function(x: Tensor, e: float) -> Tensor:
        return (x * x + torch.empty_like(x).normal_(0, e)).square().sum()

    fast = hostjit.compile(function)
    with torch.enable_grad():
        for number, e in enumerate((0.5, 0.7, 0.3, 1.3)):
            x, y = (torch.full((4, 6), 0.5, requires_grad=True) for _ in range(2))
            torch.manual_seed(number)
            function(x, e).backward()
            torch.manual_seed(number)
            fast(y, e).backward()
            assert_close(x.grad, y.grad)
    assert len(fast.specializations) == 2


def test_sizes_and_parameters_vary() -> None:
    fast = hostjit.compile(PROGRAMS["normal_"])
    for number, (rows, e) in enumerate([(4, 0.5), (6, 0.7), (30, 0.3), (9, 1.3)]):
        x = torch.ones(rows, 3)
        torch.manual_seed(number)
        expected = PROGRAMS["normal_"](x, e)
        torch.manual_seed(number)
        assert_close(fast(x, e), expected)
    assert len(fast.specializations) == 2


def test_what_eager_refuses_is_refused() -> None:
    fast = hostjit.compile(PROGRAMS["normal_"])
    x = torch.ones(20)
    for e in (0.5, 0.7, 0.9):
        fast(x, e)
    with pytest.raises(RuntimeError, match="normal expects std >= 0"):
        fast(x, -0.5)
    fast(x, 0.2)
