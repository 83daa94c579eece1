# SPDX-License-Identifier: Apache-2.0
"""Samples of operations on single elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sample import add, bools, floats, ints, special, unit, wide

from hostjit import DataType

__all__: list[str] = []

Make = Callable[[], Any]


def unary(name: str, *makers: Make, widens: bool = True) -> None:
    places = (torch, torch.nn.functional, torch.special)
    function = next(getattr(place, name) for place in places if hasattr(place, name))
    add(
        name,
        lambda: [make() for make in makers],
        lambda fd, *operands: [getattr(fd.ops, name)(x) for x in operands],
        lambda *operands: [function(wide(x) if widens else x) for x in operands],
    )


def binary(name: str, function: Callable[..., Any], *pairs: tuple[Make, Make]) -> None:
    """Numbers are inputs too, and tensors of the other operand's dtype for `function`."""

    def expected(a: Any, b: Any) -> Any:
        dtype = next(wide(x).dtype for x in (a, b) if isinstance(x, torch.Tensor) and x.dim())
        a, b = (
            wide(x) if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=dtype) for x in (a, b)
        )
        return function(a, b)

    add(
        name,
        lambda: [make() for pair in pairs for make in pair],
        lambda fd, *operands: [
            getattr(fd.ops, name)(*pair) for pair in zip(operands[::2], operands[1::2], strict=True)
        ],
        lambda *operands: [
            expected(*pair) for pair in zip(operands[::2], operands[1::2], strict=True)
        ],
    )


def complex_floats() -> torch.Tensor:
    return torch.complex(floats(3), floats(3))


for _name in ("ceil", "floor", "frac", "relu", "round", "sign", "trunc"):
    unary(_name, lambda: floats(3, 5) * 3, lambda: floats(4, dtype=torch.float16), widens=False)
unary("silu", lambda: floats(3, 5), lambda: floats(4, dtype=torch.bfloat16), widens=False)
unary("neg", lambda: floats(5), lambda: ints(5), lambda: floats(4, dtype=torch.float16))
_FLOAT = """acos asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 lgamma log log10
log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan tanh"""
for _name in _FLOAT.split():
    unary(
        _name,
        lambda: unit(3, 5),
        lambda: unit(4).bfloat16(),
        lambda: unit(3).double(),
        lambda: torch.tensor([1, 1, 1]),
        special,
    )
unary("exp", complex_floats, lambda: torch.tensor(0.5))
unary("acosh", lambda: unit(3, 5) + 1.0, lambda: ints(3, low=1))
for _name in ("isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal", "signbit"):
    unary(_name, special, lambda: special().half(), widens=False)
unary("logical_not", lambda: bools(5), lambda: ints(5), lambda: floats(3))
unary("bitwise_not", lambda: bools(5), lambda: ints(5, dtype=torch.int32))
unary("abs", lambda: floats(5), lambda: ints(5), complex_floats)
unary("real", lambda: floats(5), complex_floats)
unary("imag", complex_floats)
add(
    "erfcinv",
    lambda: [unit(6)],
    lambda fd, x: fd.ops.erfcinv(x),
    lambda x: torch.erfinv(1 - x),
)
for _name in ("set", "segment_set"):
    add(
        _name,
        lambda: [floats(3, 2).t()],
        lambda fd, x, name=_name: getattr(fd.ops, name)(x),
        torch.clone,
    )
for _dtype in (DataType.Half, DataType.Int, DataType.Bool, DataType.ComplexDouble, DataType.Float):
    add(
        "cast",
        lambda: [floats(4) * 3],
        lambda fd, x, dtype=_dtype: fd.ops.cast(x, dtype),
        lambda x, dtype=_dtype: x.to(dtype.torch_dtype),
    )
add(
    "cast",
    lambda: [ints(3), 2.5],
    lambda fd, x, n: fd.ops.add(x, fd.ops.cast(n, DataType.Int)),
    lambda x, n: x + int(n),
)

_F45, _F5, _I5 = (lambda: floats(4, 5)), (lambda: floats(5)), (lambda: ints(5))
_P5, _B5, _H5 = (lambda: ints(5, low=1)), (lambda: bools(5)), (lambda: floats(5).half())
_D5, _B16 = (lambda: floats(5).double()), (lambda: floats(5).bfloat16())
_FLOATS = ((_F45, _F45), (_F45, _F5), (_F5, lambda: 2.5), (lambda: 1.5, _F5), (_H5, _H5))
_MIXED = ((_F5, _D5), (_H5, _B16), (_F5, _P5), (_F5, lambda: torch.tensor(1.5).double()))
_INTS = ((_I5, _P5), (_I5, lambda: 3), (lambda: 7, _P5), (_I5, lambda: ints(5, low=1).int()))
for _name in ("add", "sub", "mul", "fmod", "remainder", "minimum", "maximum"):
    binary(_name, getattr(torch, _name), *_FLOATS, *_MIXED, *_INTS)
binary("pow", lambda a, b: torch.pow(a, b), (lambda: unit(4), lambda: floats(4)))
binary("pow", torch.pow, (lambda: unit(4), lambda: 1.7), (lambda: 1.3, _F5), (_P5, _P5))
binary("truediv", torch.true_divide, *_FLOATS, *_MIXED, *_INTS)
binary("div", torch.true_divide, *_FLOATS, *_MIXED)
binary("div", lambda a, b: torch.div(a, b, rounding_mode="trunc"), *_INTS)
binary("mod", torch.fmod, *_INTS)
binary("atan2", torch.atan2, *_FLOATS, (_I5, _P5))
binary("nextafter", torch.nextafter, (_F5, _F5), (_D5, _D5))
for _name in ("eq", "ge", "gt", "le", "lt", "ne"):
    binary(_name, getattr(torch, _name), *_FLOATS, *_INTS, (_B5, _B5))
for _name in ("logical_and", "logical_or"):
    binary(_name, getattr(torch, _name), (_B5, _B5), (_I5, _F5))
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    binary(_name, getattr(torch, _name), *_INTS, (_B5, _B5), (_B5, _I5))
_SHIFT = lambda: ints(5, low=0)  # noqa: E731
binary("bitwise_left_shift", torch.bitwise_left_shift, (_P5, _SHIFT), (_P5, lambda: 3))
binary("bitwise_right_shift", torch.bitwise_right_shift, (_I5, _SHIFT), (_I5, lambda: 3))
binary("gcd", torch.gcd, (_I5, _P5), (_I5, lambda: 6))


def logical_shift(x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    bits = 32 if x.dtype == torch.int32 else 64
    shifted = [
        (int(value) % (1 << bits)) >> int(by)
        for value, by in zip(x.tolist(), shift.expand_as(x).tolist(), strict=True)
    ]
    signed = [value - (1 << bits) if value >> (bits - 1) else value for value in shifted]
    return torch.tensor(signed, dtype=x.dtype)


binary(
    "logical_right_shift",
    logical_shift,
    (_I5, lambda: torch.tensor([0, 1, 31, 63, 64])),
    (lambda: ints(5).int(), lambda: torch.tensor([0, 1, 31, 32, 40], dtype=torch.int32)),
    (_I5, lambda: 3),
)
binary("complex", torch.complex, (_F5, _F5), (_D5, _D5))

add(
    "where",
    lambda: [bools(4, 5), floats(5), 2.0],
    lambda fd, c, x, y: (fd.ops.where(c, x, y), fd.ops.where(c, y, x)),
    lambda c, x, y: [torch.where(c, x, y), torch.where(c, y, x)],
)
add(
    "where",
    lambda: [bools(5), floats(5).half()],
    lambda fd, c, x: (fd.ops.where(c, x, x), fd.ops.where(c, 3, 5), fd.ops.where(c, 3.0, 5.0)),
    lambda c, x: [x, torch.where(c, 3, 5), torch.where(c, 3.0, 5.0).double()],
)
add(
    "lerp",
    lambda: [floats(4, 5), floats(5), 0.25],
    lambda fd, a, b, w: (fd.ops.lerp(a, b, w), fd.ops.lerp(a, 2.0, b)),
    lambda a, b, w: [torch.lerp(a, b.expand(4, 5), w), a + b * (2.0 - a)],
)
add(
    "addcmul",
    lambda: [floats(4, 5), floats(5), floats(4, 1), 0.25],
    lambda fd, a, b, c, w: fd.ops.addcmul(a, b, c, w),
    lambda a, b, c, w: torch.addcmul(a, b, c, value=w),
)
add(
    "clamp",
    lambda: [special(), ints(6), -0.5],
    lambda fd, x, n, low: (
        fd.ops.clamp(x, low, 1.0),
        fd.ops.clamp(x, None, 1.0),
        fd.ops.clamp(n, low, 3),
    ),
    lambda x, n, low: [x.clamp(low, 1.0), x.clamp(max=1.0), n.clamp(0, 3)],
)
add(
    "threshold",
    lambda: [special(), 0.5],
    lambda fd, x, bound: fd.ops.threshold(x, bound, 7.0),
    lambda x, bound: torch.nn.functional.threshold(x, bound, 7.0),
)
