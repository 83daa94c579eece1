# SPDX-License-Identifier: Apache-2.0
"""log of `f64`.

log(2**n * (1 + f)) = n * log(2) + log(1 + f), where 1 + f is in [0.69, 1.38). With s = f / (2 + f),
log(1 + f) is f - h + s * (h + s**2 * P(s**2)), where h = f**2 / 2. The largest terms, the multiple
of log(2) and f, are added exactly, and h, the next, is not rounded before it is subtracted.
"""

from __future__ import annotations

from hostjit.kernels.dtypes import DType
from hostjit.kernels.elementary.logarithm import with_edges
from hostjit.kernels.elementary.pieces import (
    FORMATS,
    multiply_add,
    polynomial,
    split_power_of_2,
)
from hostjit.kernels.operation import Value, form

__all__ = ["precise_log"]

# Where n becomes 1, terms cancel: a little below sqrt(1/2) the largest error is least.
_LOWEST = 0.69
# (log((1 + s) / (1 - s)) - 2 * s) / s**3 in powers of s**2 for |s| <= 0.2; error relative to the
# logarithm: 2**-62.6.
_TAIL = (
    0.666666666666666,
    0.4000000000005657,
    0.2857142855587131,
    0.22222224290381998,
    0.18181666289611315,
    0.1539109730295715,
    0.13173859213174832,
    0.13841210732038678,
)


@form(DType.F64, name="log")
def precise_log(x: Value) -> Value:
    """Compute the natural logarithm."""
    numbers = FORMATS[DType.F64]
    is_denormal = x < 2.0**-1022
    n, m = split_power_of_2(is_denormal.where(x * 2.0**54, x), _LOWEST)
    n = n - is_denormal.where(54.0, 0.0, like=x)
    f = m - 1.0
    s = f / (f + 2.0)
    square = s * s
    multiple = n * numbers.log_2_high
    large = multiple + f
    rest = multiply_add(n, numbers.log_2_low, f - (large - multiple))
    slope = multiply_add(square, polynomial(square, _TAIL), f * f * 0.5)
    rest = multiply_add(s, slope, rest)
    return with_edges(x, large + multiply_add(f * -0.5, f, rest))
