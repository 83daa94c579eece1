# SPDX-License-Identifier: Apache-2.0
"""erf and gelu of `f32`.

For |x| < 1, erf(x) = x + x * P(x**2); beyond, erf(|x|) = 1 - 2**Q(|x| - 1), where the power is at
most 0.16, so that its errors count little.

gelu(x) is x times the normal distribution up to x. What lies beyond |x|, at most a half, is a power
of two everywhere: nothing cancels, and no small |x| needs a polynomial of its own.
"""

from __future__ import annotations

from hostjit.kernels.dtypes import DType
from hostjit.kernels.elementary.exponential import reduce_power_of_2
from hostjit.kernels.elementary.pieces import multiply_add, polynomial
from hostjit.kernels.operation import Value, form

__all__ = ["erf", "gelu"]

# erf(x) / x - 1 in powers of x**2 on |x| <= 1; error relative to erf(x): 2**-29.4.
_SMALL = (
    0.12837917,
    -0.37612626,
    0.11283579,
    -0.026853347,
    0.0051871622,
    -0.00079978531,
    0.000078069039,
)
# log2(erfc(x)) in powers of x - 1 on [1, 3.95]; error relative to erf(x): 2**-27.4.
_LARGE = (
    -2.6684167,
    -3.8072212,
    -1.2164065,
    -0.059672896,
    0.013892064,
    -0.0023304862,
    0.00018192206,
)
# erf rounds to 1 from 3.92 on.
_LIMIT = 3.95
# log2(erfc(x / sqrt(2))) / x in powers of x on [0, 5.6]; error relative to the distribution:
# 2**-28.3 above zero, 2**-24.3 below.
_BEYOND = (
    -1.1511042,
    -0.45922253,
    -0.052427217,
    0.0069069224,
    0.000055441345,
    -0.00032252242,
    0.000096101314,
    -0.000016415872,
    0.0000017551306,
    -1.0921037e-7,
    3.0243401e-9,
)
# From 5.6 on the distribution rounds to 1, and below -5.6, by eager's formula, to 0.
_LIMIT_OF_GELU = 5.6


@form(DType.F32)
def erf(x: Value) -> Value:
    """Compute the error function."""
    magnitude = x.intrinsic("fabs")
    small = multiply_add(magnitude, polynomial(x * x, _SMALL), magnitude)
    offset = (magnitude > _LIMIT).where(_LIMIT, magnitude) - 1.0
    # The exponent is rounded once: its first term is the largest by far where it matters.
    exponent = multiply_add(offset, polynomial(offset, _LARGE[1:]), _LARGE[0])
    large = reduce_power_of_2(exponent).taken_from(1.0)
    return (magnitude < 1.0).where(small, large).intrinsic("copysign", x)


def gelu(x: Value) -> Value:
    """Compute x * (1 + erf(x / sqrt(2))) / 2. For x = -inf it is NaN, as in eager."""
    magnitude = x.intrinsic("fabs")
    exponent = multiply_add(magnitude, polynomial(magnitude, _BEYOND), -1.0)
    reduced = reduce_power_of_2(exponent)
    beyond = (magnitude < _LIMIT_OF_GELU).where(reduced.power * reduced.fraction, 0.0)
    return x * (x < 0.0).where(beyond, 1.0 - beyond)
