# SPDX-License-Identifier: Apache-2.0
"""tanh of `f64`.

For |x| < 0.58, tanh(x) = x + x * q with q = x**2 * P(x**2) / Q(x**2); beyond, tanh(|x|) = 1 + q
with q = -2 / (exp(2 |x|) + 1). Both are one division. Beyond, where q is as large as the result,
what is lost in its denominator and in the division is added.
"""

from __future__ import annotations

from hostjit.kernels.dtypes import DType
from hostjit.kernels.elementary.exponential import reduce_exponential
from hostjit.kernels.elementary.pieces import FORMATS, multiply_add, polynomial
from hostjit.kernels.operation import Value, form

__all__ = ["precise_tanh"]

_LARGE = 0.58
# tanh rounds to 1 from 19.1 on.
_LIMIT = 20.0
# (tanh(x) / x - 1) / x**2 is the first by the second, in powers of x**2, on |x| <= 0.65; error
# relative to tanh(x): 2**-59.2. The quotient of the constants has no error.
_NUMERATOR = (-1.0, -0.061489487670353296, -0.0005972280816880661)
_DENOMINATOR = (3.0, 1.3844684630110338, 0.06986478373584341, 0.0006192734453370538)


@form(DType.F64, name="tanh")
def precise_tanh(x: Value) -> Value:
    """Compute the hyperbolic tangent."""
    magnitude = x.intrinsic("fabs")
    is_small = magnitude < _LARGE
    limited = (magnitude > _LIMIT).where(_LIMIT, magnitude)
    exponential = reduce_exponential(limited + limited, FORMATS[DType.F64].bias)
    power = exponential.power
    whole = power + 1.0
    sum_ = multiply_add(power, exponential.growth, whole)
    lost = multiply_add(power, exponential.growth, whole - sum_)

    square = x * x
    tail = polynomial(square, _NUMERATOR[1:])
    numerator = multiply_add(square * square, tail, square * _NUMERATOR[0])
    denominator = multiply_add(square, polynomial(square, _DENOMINATOR[1:]), _DENOMINATOR[0])
    numerator = is_small.where(numerator, -2.0)
    denominator = is_small.where(denominator, sum_)
    quotient = numerator / denominator

    small = multiply_add(magnitude, quotient, magnitude)
    remainder = multiply_add(quotient, -denominator, numerator)
    remainder = multiply_add(quotient, -lost, remainder)
    # One by the denominator is the quotient by -2.
    correction = remainder * (quotient * -0.5)
    nearest = quotient + 1.0
    large = nearest + ((quotient - (nearest - 1.0)) + correction)
    return is_small.where(small, large).intrinsic("copysign", x)
