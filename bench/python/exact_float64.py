# SPDX-License-Identifier: Apache-2.0
"""Functions of float64 in the 64 bits of a long double, and where their errors are looked for."""

from collections.abc import Callable

import numpy
import torch
from torch import Tensor

__all__ = ["EXACT", "errors_in_ulp", "has_wide_numbers", "points"]

_FRACTION_BITS = 52
_LOWEST_EXPONENT = -1022

EXACT: dict[str, Callable[[numpy.ndarray], numpy.ndarray]] = {
    "exp": numpy.exp,
    "log": numpy.log,
    "tanh": numpy.tanh,
    "sigmoid": lambda x: 1 / (1 + numpy.exp(-x)),
    "silu": lambda x: x / (1 + numpy.exp(-x)),
}
# Where each has something to compute; log takes the bits of any positive number.
_RANGES = {
    "exp": ((-746.0, 710.0), (-1.0, 1.0), (-1e-3, 1e-3)),
    "log": ((0.6, 1.5), (0.99, 1.01), (1e-3, 1e3)),
    "tanh": ((-20.0, 20.0), (-2.0, 2.0), (0.4, 0.7), (-1e-3, 1e-3)),
    "sigmoid": ((-746.0, 40.0), (-40.0, 40.0), (-2.0, 2.0), (-1e-3, 1e-3)),
    "silu": ((-746.0, 40.0), (-40.0, 40.0), (-2.0, 2.0), (-1e-3, 1e-3)),
}
_EDGES = (0.0, 1.0, 2.0, 0.5, 5e-324, 1e-310, 2.0**-1022, 1e-160, 709.78, 709.79, 745.13, 745.14)
_LARGE = (1e5, 1e160, 1.7976931348623157e308, float("inf"))


def has_wide_numbers() -> bool:
    """Whether a long double of this machine has 64 bits at least."""
    return int(numpy.finfo(numpy.longdouble).nmant) >= 63


def points(name: str, count: int, seed: int = 0) -> Tensor:
    """Return the edges of a function's domain, and `count` random numbers from each range."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.tensor([*_EDGES, *_LARGE], dtype=torch.float64)
    parts = [edges, -edges, torch.tensor([float("nan")], dtype=torch.float64)]
    for low, high in _RANGES[name]:
        random = torch.rand(count, generator=generator, dtype=torch.float64)
        parts.append(low + (high - low) * random)
    if name == "log":
        bits = torch.randint(1, 0x7FF << _FRACTION_BITS, (count,), generator=generator)
        parts.append(bits.view(torch.float64))
    return torch.cat(parts)


def errors_in_ulp(name: str, x: Tensor, result: Tensor) -> Tensor:
    """Return the error of each element of `result`, which should be the function `name` of x.

    In units in the last place of the exact result; infinite where one of them is NaN, infinite or
    of another sign, and the other isn't.
    """
    with numpy.errstate(all="ignore"):
        exact = EXACT[name](x.numpy().astype(numpy.longdouble))
        rounded = exact.astype(numpy.float64)
        found = result.numpy()
        _, exponent = numpy.frexp(numpy.where(exact == 0, numpy.finfo(numpy.float64).tiny, exact))
        exponent = numpy.maximum(exponent - 1, _LOWEST_EXPONENT)
        unit = numpy.ldexp(numpy.longdouble(1), exponent - _FRACTION_BITS)
        errors = numpy.abs(found - exact) / unit
        same = (found == rounded) | (numpy.isnan(found) & numpy.isnan(rounded))
        errors = numpy.where(same & ~numpy.isfinite(rounded), 0, errors)
        wrong_sign = (numpy.signbit(found) != numpy.signbit(exact)) & ~numpy.isnan(found)
        errors = numpy.where(wrong_sign | ~numpy.isfinite(errors), numpy.inf, errors)
    return torch.from_numpy(errors.astype(numpy.float64))
