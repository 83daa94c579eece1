# SPDX-License-Identifier: Apache-2.0
"""Errors of floating-point results in units in the last place of the exact result."""

import math

import torch
from torch import Tensor

__all__ = ["ulp_errors"]

_F64_FRACTION_BITS = 52
_F64_BIAS = 1023


def ulp_errors(result: Tensor, exact: Tensor) -> Tensor:
    """Return the error of each element of `result` in ulp of the float64 in `exact`.

    A unit is the distance of neighbouring numbers of the result's type at the exact value; that of
    the denormals below the normal ones. The error is 0 where both are NaN or, after rounding, the
    same infinity, and infinite where only one is NaN or a sign is wrong (of zeros too).
    """
    info = torch.finfo(result.dtype)
    fraction_bits = -round(math.log2(info.eps))
    lowest = _F64_BIAS + round(math.log2(info.smallest_normal))
    exponent = (exact.view(torch.int64) >> _F64_FRACTION_BITS) & (2 * _F64_BIAS + 1)
    exponent.clamp_(min=lowest)
    units = 2 * _F64_BIAS + fraction_bits - exponent
    units = (units << _F64_FRACTION_BITS).view(torch.float64)
    errors = result.double().sub_(exact).mul_(units).abs_()
    if not bool(errors.max() < math.inf):
        rounded = exact.to(result.dtype)
        same = (rounded == result) | (rounded.isnan() & result.isnan())
        # An infinity instead of a finite number counts as the number after the largest.
        above_largest = 2.0 ** round(math.log2(info.max))
        beyond = result.isinf() & exact.isfinite() & ~same
        distance = (exact.abs() - above_largest).abs_().mul_(units)
        errors = torch.where(beyond, distance, errors).nan_to_num_(nan=math.inf)
        errors.masked_fill_(same, 0.0)
    wrong_sign = (result.signbit() != exact.signbit()) & ~result.isnan()
    return errors.masked_fill_(wrong_sign, math.inf)
