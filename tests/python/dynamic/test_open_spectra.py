# SPDX-License-Identifier: Apache-2.0
"""`torch.stft` and `torch.istft` of signals of any length: one program."""

from __future__ import annotations

from collections.abc import Callable

import many_calls
import pytest
import torch
from torch import Tensor

import hostjit

WINDOW = torch.hann_window(16)
SHORT = torch.hamming_window(12)
LENGTHS = (40, 41, 43, 55, 64, 90)


def spectra(x: Tensor) -> Tensor:
    return torch.stft(x, 16, 4, window=WINDOW, return_complex=True)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "there": lambda x: torch.view_as_real(spectra(x)),
    "there and back": lambda x: torch.istft(spectra(x) * 2, 16, 4, window=WINDOW),
    "of the length": lambda x: torch.istft(
        spectra(x) * 2, 16, 4, window=WINDOW, length=x.shape[-1]
    ),
    "shorter": lambda x: torch.istft(
        spectra(x), n_fft=16, hop_length=4, window=WINDOW, length=x.shape[-1] // 2
    ),
    "longer": lambda x: torch.istft(spectra(x), 16, 4, window=WINDOW, length=x.shape[-1] + 30),
    "a short window": lambda x: torch.istft(
        torch.stft(x, 16, 4, 12, SHORT, return_complex=True, normalized=True),
        *(16, 4, 12, SHORT, True, True),
        length=x.shape[-1],
    ),
    "one signal": lambda x: torch.istft(spectra(x[0]), 16, 4, window=WINDOW, length=len(x[0]) - 1),
    "no window": lambda x: torch.istft(
        torch.stft(x, 16, 4, return_complex=True, center=False, window=torch.ones(16)),
        *(16, 4),
        center=False,
        length=x.shape[1] - 9,
    ),
}


@pytest.mark.filterwarnings("ignore:The length of signal is shorter", "ignore:A window was not")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_length(name: str, runtime: str) -> None:
    calls = [(torch.randn(2, n),) for n in LENGTHS]
    many_calls.check(FUNCTIONS[name], calls, programs=1, dynamic=True, runtime=runtime)


@pytest.mark.parametrize("name", ["of the length", "shorter"])
def test_gradients(name: str) -> None:
    function = FUNCTIONS[name]
    fast = hostjit.compile(function, dynamic=True, fallback=False)
    with torch.enable_grad():
        for n in (40, 43, 56):
            x = torch.randn(2, n, requires_grad=True)
            gradients = [torch.autograd.grad(f(x).square().sum(), x) for f in (fast, function)]
            torch.testing.assert_close(*gradients)
    assert len(fast.specializations) == 1
