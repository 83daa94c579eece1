# SPDX-License-Identifier: Apache-2.0
"""tanh of `f32`.

For |x| < 1, tanh(x) = x + x**3 * P(x**2); beyond, tanh(|x|) = 1 - 2 / (exp(2 |x|) + 1). What is
added to x or 1 is at most a third of the result, so that its errors count little.
"""

from __future__ import annotations

from hostjit.kernels.dtypes import DType
from hostjit.kernels.elementary.exponential import reduce_power_of_2
from hostjit.kernels.elementary.pieces import careful_polynomial, multiply_add
from hostjit.kernels.operation import Value, form

__all__ = ["tanh"]

# (tanh(x) / x - 1) / x**2 in powers of x**2 on |x| <= 1; error relative to tanh(x): 2**-27.7.
_SMALL = (
    -0.33333296,
    0.13332346,
    -0.05387985,
    0.021486703,
    -0.0079460796,
    0.0023012937,
    -0.00035842028,
)
# tanh rounds to 1 from 9.02 on.
_LIMIT = 9.1
_TWICE_LOG2_E = 2.88539008


@form(DType.F32)
def tanh(x: Value) -> Value:
    """Compute the hyperbolic tangent."""
    magnitude = x.intrinsic("fabs")
    square = x * x
    small = multiply_add(magnitude * square, careful_polynomial(square, _SMALL), magnitude)
    limited = (magnitude > _LIMIT).where(_LIMIT, magnitude)
    large = 1.0 - 2.0 / reduce_power_of_2(limited, _TWICE_LOG2_E).added_to(1.0)
    return (magnitude < 1.0).where(small, large).intrinsic("copysign", x)
