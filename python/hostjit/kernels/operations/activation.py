# SPDX-License-Identifier: Apache-2.0
"""Activation functions, as eager's formulas."""

from __future__ import annotations

import math

from hostjit.kernels.dtypes import FLOATS, INTEGERS, DType
from hostjit.kernels.elementary import error_function, logistic
from hostjit.kernels.elementary.logarithm import log1p_exp
from hostjit.kernels.operation import Value, apply, operation

NUMBERS = FLOATS + INTEGERS


@operation("T>T", FLOATS)
def sigmoid(x: Value) -> Value:
    return logistic.sigmoid(x)


@operation("T>T", FLOATS)
def silu(x: Value) -> Value:
    return logistic.times_sigmoid(x, x)


def _log1p_exp(x: Value) -> Value:
    """log(1 + exp(x)); for `f32`, x must not be positive."""
    return log1p_exp(x) if x.dtype is DType.F32 else x.math("exp").math("log1p")


@operation("T>T", FLOATS)
def log_sigmoid(x: Value) -> Value:
    return apply("minimum", x, x.of(0.0)) - _log1p_exp(-x.intrinsic("fabs"))


@operation("T>T", FLOATS)
def gelu(x: Value) -> Value:
    if x.dtype is DType.F32:
        return error_function.gelu(x)
    return x * 0.5 * (1.0 + (x * math.sqrt(0.5)).math("erf"))


@operation("T>T", FLOATS)
def gelu_tanh(x: Value) -> Value:
    inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
    # (1 + tanh(y)) / 2 is sigmoid(2 y), without cancellation.
    return logistic.times_sigmoid(x, inner + inner)


@operation("T>T", NUMBERS)
def relu(x: Value) -> Value:
    return apply("maximum", x.of(0), x)


@operation("T>T", NUMBERS)
def relu6(x: Value) -> Value:
    return apply("clamp", x, x.of(0), x.of(6))


@operation("TT>T", FLOATS)
def leaky_relu(x: Value, slope: Value) -> Value:
    return (x > 0.0).where(x, x * slope)


@operation("TTTT>T", FLOATS)
def elu(x: Value, alpha: Value, scale: Value, input_scale: Value) -> Value:
    negative = (x * input_scale).math("expm1") * (alpha * scale)
    return (x <= 0.0).where(negative, x * scale)


@operation("TTT>T", FLOATS)
def softplus(x: Value, beta: Value, limit: Value) -> Value:
    scaled = x * beta
    if x.dtype is DType.F32:
        total = apply("maximum", scaled, x.of(0.0)) + _log1p_exp(-scaled.intrinsic("fabs"))
    else:
        total = _log1p_exp(scaled)
    return (scaled > limit).where(x, total / beta)


@operation("T>T", FLOATS)
def mish(x: Value) -> Value:
    if x.dtype is DType.F32:
        return logistic.mish(x)
    return x * x.math("exp").math("log1p").math("tanh")


@operation("T>T", FLOATS)
def hardsigmoid(x: Value) -> Value:
    return apply("relu6", x + 3.0) / 6.0


@operation("T>T", FLOATS)
def hardswish(x: Value) -> Value:
    return x * apply("relu6", x + 3.0) / 6.0
