# SPDX-License-Identifier: Apache-2.0
"""Elementary functions of `f32`, and some of `f64`, as arithmetic, one file per family.

A call of a library keeps a fixed number of lanes, spills every live register and reads its
constants again. These forms have neither calls nor branches nor tables, so LLVM's vectoriser makes
any width of them, and the elements that a vector loop leaves over get the same bits.

Coefficients are our own: of least maximum error (Lawson's reweighted least squares at Chebyshev
nodes, references by mpmath with 40 digits), rounded to their type from the lowest power on, the
others fitted again after each. Each table states its formula, interval and largest error.
`bench/python/accuracy.py` measures the functions on every `f32`, and on random `f64`.

Importing this package fills `FORMS`.
"""

from hostjit.kernels.elementary import (
    error_function,
    exponential,
    f64_hyperbolic,
    f64_logarithm,
    hyperbolic,
    logarithm,
    logistic,
    power,
)

__all__ = [
    "error_function",
    "exponential",
    "f64_hyperbolic",
    "f64_logarithm",
    "hyperbolic",
    "logarithm",
    "logistic",
    "power",
]
