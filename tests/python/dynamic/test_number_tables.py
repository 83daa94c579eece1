# SPDX-License-Identifier: Apache-2.0
"""Windows, frequencies, indices and logarithmic ranges of an open length: one program for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import many_calls
import pytest
import torch
from torch import Tensor

import hostjit

SIZES = [(4, 6), (5, 7), (7, 9), (12, 4), (6, 31), (3, 5)]
TABLES: dict[str, Callable[[Tensor], Any]] = {
    "logspace": lambda x: torch.logspace(0, 1, x.shape[0]) + x.sum(),
    "logspace, base 2": lambda x: torch.logspace(-2, 3.5, x.shape[1], 2.0, dtype=torch.float64),
    "hann": lambda x: torch.hann_window(x.shape[0]) * x[:, 0],
    "hann, symmetric": lambda x: torch.hann_window(x.shape[0] + 2, False, dtype=torch.float64),
    "hamming": lambda x: torch.hamming_window(x.shape[1], periodic=False) * x,
    "hamming, numbers": lambda x: torch.hamming_window(x.shape[1], True, 0.6, beta=0.3) * x,
    "blackman": lambda x: torch.blackman_window(x.shape[1]) * x,
    "bartlett": lambda x: torch.bartlett_window(x.shape[1]) * x,
    "bartlett, symmetric": lambda x: torch.bartlett_window(x.shape[0] + 1, periodic=False),
    "kaiser": lambda x: torch.kaiser_window(x.shape[0]) * x[:, 0],
    "kaiser, numbers": lambda x: torch.kaiser_window(x.shape[1], False, 5.5, dtype=torch.float64),
    "frequencies": lambda x: torch.fft.fftfreq(x.shape[0]) * x[:, 0],
    "frequencies, a step": lambda x: torch.fft.fftfreq(x.shape[1], d=0.25, dtype=torch.float64),
    "frequencies of real numbers": lambda x: torch.fft.rfftfreq(x.shape[1], 0.5),
    "lower": lambda x: x[:, 0][torch.tril_indices(x.shape[0], x.shape[0])[1]],
    "lower, beside": lambda x: torch.tril_indices(x.shape[0], x.shape[0], 2) + 1,
    "lower, below": lambda x: torch.tril_indices(x.shape[0], x.shape[0], -1, dtype=torch.int32),
    "upper": lambda x: torch.triu_indices(x.shape[1], x.shape[1], offset=1),
    "upper, whole": lambda x: x[0][torch.triu_indices(x.shape[1], x.shape[1])[0]],
}


@pytest.mark.parametrize("name", TABLES)
def test_any_length(name: str, runtime: str) -> None:
    calls = [(torch.randn(n, m),) for n, m in SIZES]
    many_calls.check(TABLES[name], calls, programs=1, dynamic=True, runtime=runtime)


@pytest.mark.parametrize("of", [torch.tril_indices, torch.triu_indices])
def test_indices_of_any_matrix(of: Callable[..., Tensor]) -> None:
    for offset in (-2, -1, 0, 1, 2):

        def call(x: Tensor, offset: int = offset) -> Tensor:
            return of(*x.shape, offset)

        with hostjit.knobs(enable="recompile_limit(64)"):
            fast = hostjit.compile(call, dynamic=True)
            for n in range(2, 7):
                for m in range(2, 7):
                    x = torch.zeros(n, m)
                    torch.testing.assert_close(fast(x), call(x), check_stride=True)


def test_gradients() -> None:
    def call(x: Tensor) -> Tensor:
        i = torch.tril_indices(len(x), len(x))
        return (x * torch.hann_window(len(x)))[i[0]] * x[i[1]]

    fast = hostjit.compile(call, dynamic=True, fallback=False)
    with torch.enable_grad():
        for n in (3, 4, 7):
            x = torch.randn(n, requires_grad=True)
            gradients = [torch.autograd.grad(f(x).square().sum(), x) for f in (fast, call)]
            torch.testing.assert_close(*gradients)
    assert len(fast.specializations) == 1
