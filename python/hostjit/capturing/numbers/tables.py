# SPDX-License-Identifier: Apache-2.0
"""Windows, frequencies and indices of an open length; see `parameters`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from hostjit.capturing.numbers.parameter_function import NumberFunction
from hostjit.capturing.numbers.ranges import is_linear, linspace

__all__ = ["TABLES"]

_FLOATS = (torch.float32, torch.float64)


def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`logspace` of floats: powers in double precision, as eager's."""
    dtype = dtype or torch.get_default_dtype()
    exponents = linspace(start, end, steps, dtype=dtype, device=device)
    return torch.pow(base, exponents.double()).to(dtype)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Half a cosine and a bit more."""
    places, last = _places(window_length, periodic, dtype, device)
    return (places * (math.pi * 2.0 / last)).cos() * -beta + alpha


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A raised cosine."""
    return hamming_window(window_length, periodic, 0.5, 0.5, dtype=dtype, device=device)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Two cosines."""
    places, last = _places(window_length, periodic, dtype, device)
    angles = places * (math.pi / last)
    return (angles * 4).cos() * 0.08 - (angles * 2).cos() * 0.5 + 0.42


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle."""
    places, last = _places(window_length, periodic, dtype, device)
    rising = places * (2.0 / last)
    return torch.where(places <= last // 2, rising, 2.0 - rising)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Bessel's function of half a circle."""
    places, last = _places(window_length, periodic, dtype, device)
    across = places * (2.0 / last) - 1
    height = torch.i0((1 - across * across).clamp_min(0).sqrt() * beta)
    return height / torch.i0(torch.full((), beta, dtype=places.dtype, device=device))


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Frequencies of a transform, the negative ones behind the others."""
    dtype = dtype or torch.get_default_dtype()
    places = torch.arange(n, dtype=dtype, device=device)
    return torch.where(places < (n + 1) // 2, places, places - n) * (1.0 / (n * d))


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Frequencies of a transform of real numbers."""
    dtype = dtype or torch.get_default_dtype()
    return torch.arange(n // 2 + 1, dtype=dtype, device=device) * (1.0 / (n * d))


def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: torch.dtype = torch.int64,
    device: torch.device | None = None,
) -> Tensor:
    """Where the elements on and below a diagonal are: rows that grow, and then whole ones."""
    first = max(0, -offset)  # the first row that has any
    width = min(col, 1 + offset) if offset > 0 else 1  # of that row
    growing = min(row - first, col - width + 1)
    places = torch.arange(growing * (2 * width + growing - 1) // 2, device=device)
    half = width - 0.5
    rows = torch.floor((places * 2.0 + half * half).double().sqrt() - half)
    columns = places - torch.floor((rows + (2 * width - 1)) * rows * 0.5)
    found = torch.stack((rows.to(dtype) + first, columns.to(dtype)))
    if row - first == growing:
        return found
    whole = torch.arange((row - first - growing) * col, dtype=dtype, device=device)
    rest = torch.stack((whole // col + (first + growing), whole % col))
    return torch.cat((found, rest), 1)


def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: torch.dtype = torch.int64,
    device: torch.device | None = None,
) -> Tensor:
    """Where the elements on and above a diagonal are: those below another, from the end."""
    lower = tril_indices(row, col, col - row - offset, dtype=dtype, device=device).flip(1)
    return torch.stack((row - 1 - lower[0], col - 1 - lower[1]))


def _places(
    length: int, periodic: bool, dtype: torch.dtype | None, device: torch.device | None
) -> tuple[Tensor, int]:
    """The elements of a window by number, and that of the last one in the whole of it."""
    dtype = dtype or torch.get_default_dtype()
    return torch.arange(length, dtype=dtype, device=device), length if periodic else length - 1


def _has_logarithms(given: Mapping[str, Any]) -> bool:
    base = given["base"]
    return is_linear(given) and isinstance(base, (int, float)) and base > 0


def _is_table(name: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a length is that of a table of floats with two elements or more."""

    def applies(given: Mapping[str, Any]) -> bool:
        if given["requires_grad"] is not False or given["dtype"] not in (None, *_FLOATS):
            return False
        others = (value for key, value in given.items() if key in ("alpha", "beta", "d"))
        are_known = all(isinstance(value, (int, float)) for value in others)
        return are_known and _is_length(given[name]) and bool(given[name] > 1)

    return applies


def _is_length(value: Any) -> bool:
    return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)


def _has_triangle(given: Mapping[str, Any]) -> bool:
    """Whether a known diagonal goes through a matrix in which it starts at the side."""
    row, col, offset = (given[name] for name in ("row", "col", "offset"))
    if type(offset) is not int or given["dtype"] not in (torch.int32, torch.int64):
        return False
    if not _is_length(row) or not _is_length(col):
        return False
    return bool(row > 1) and bool(col > 1) and bool(row + offset > 0) and bool(offset < col)


_INT = (int,)
TABLES: dict[Callable[..., Any], NumberFunction] = {
    torch.logspace: NumberFunction(("steps",), logspace, _has_logarithms, _INT),
    torch.tril_indices: NumberFunction(("row", "col"), tril_indices, _has_triangle, _INT),
    torch.triu_indices: NumberFunction(("row", "col"), triu_indices, _has_triangle, _INT),
    torch.fft.fftfreq: NumberFunction(("n",), fftfreq, _is_table("n"), _INT),
    torch.fft.rfftfreq: NumberFunction(("n",), rfftfreq, _is_table("n"), _INT),
}
for _of_torch, _window in (
    (torch.hann_window, hann_window),
    (torch.hamming_window, hamming_window),
    (torch.blackman_window, blackman_window),
    (torch.bartlett_window, bartlett_window),
    (torch.kaiser_window, kaiser_window),
):
    TABLES[_of_torch] = NumberFunction(
        ("window_length",), _window, _is_table("window_length"), _INT
    )
