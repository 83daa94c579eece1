# SPDX-License-Identifier: Apache-2.0
"""`torch.istft` of an open length: windows of a signal are put together as PyTorch's C++ does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["has_halves_of_spectra", "istft"]


def istft(
    input: Tensor,  # noqa: A002
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """Transform each window back, add them up, and divide by the sum of the windows' squares."""
    spectra = input.transpose(-1, -2)
    is_one = spectra.dim() == 2
    spectra = spectra.unsqueeze(0) if is_one else spectra
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    parts = torch.fft.irfft(spectra, n_fft, norm="ortho" if normalized else "backward")
    if window is None:
        window = torch.ones(width, dtype=parts.dtype, device=parts.device)
    left = (n_fft - width) // 2
    weights = functional.pad(window, (left, n_fft - width - left))
    count = parts.shape[1]
    whole = n_fft + hop * (count - 1)
    add_up = torch.ops.aten.unfold_backward
    signal = add_up(parts * weights, [parts.shape[0], whole], 1, n_fft, hop)
    squares = weights.square().expand(1, count, n_fft)
    scale = add_up(squares, [1, whole], 1, n_fft, hop)
    begin = n_fft // 2 if center else 0
    assert length is not None
    missing = begin + length - whole
    found: Tensor
    if missing > 0:
        found = signal[:, begin:] / scale[:, begin:]
        found = functional.pad(found, (0, missing))
    else:
        found = signal[:, begin : begin + length] / scale[:, begin : begin + length]
    return found.squeeze(0) if is_one else found


def has_halves_of_spectra(given: Mapping[str, Any]) -> bool:
    """Whether a real signal is wanted of complex numbers, by known windows, and some of it."""
    spectra, window, length = given["input"], given["window"], given["length"]
    numbers = (given["n_fft"], given["hop_length"], given["win_length"])
    if not isinstance(spectra, Tensor) or spectra.dtype is not torch.complex64:
        return False
    if spectra.dim() not in (2, 3) or not all(n is None or type(n) is int for n in numbers):
        return False
    if given["onesided"] is False or given["return_complex"] is not False:
        return False
    if window is not None and (not isinstance(window, Tensor) or window.dtype is not torch.float32):
        return False
    n_fft, hop, width = numbers
    size = n_fft if width is None else width
    fits = window is None or (window.dim() == 1 and bool(window.shape[0] == size))
    is_whole = bool(spectra.shape[-2] == n_fft // 2 + 1) and 0 < size <= n_fft
    overlaps = 0 < (n_fft // 4 if hop is None else hop) <= size
    return fits and is_whole and overlaps and bool(length > 0)
