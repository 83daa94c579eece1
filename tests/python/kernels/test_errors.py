# SPDX-License-Identifier: Apache-2.0
"""What an invalid kernel says."""

from __future__ import annotations

import re

import pytest

from hostjit.kernels import DType, KernelBuilder, result_dtype
from hostjit.kernels.expression import (
    Apply,
    Bounded,
    Index,
    Load,
    Operand,
    PointwiseKernel,
    Store,
)

X = Operand(DType.F32)
LOAD = Load(0, DType.F32, (1,))


def invalid(message: str, *, values: tuple[object, ...], stores: tuple[Store, ...] = ()) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        PointwiseKernel("k", (4,), (X,), (X,), values, stores)  # type: ignore[arg-type]


def test_operation_errors() -> None:
    f32, i32 = DType.F32, DType.I32
    cases: list[tuple[str, tuple[DType, ...], str]] = [
        ("nothing", (f32,), "unknown operation 'nothing'"),
        ("add", (f32,), "add: 1 operands, expected 2"),
        ("add", (f32, i32), "add: operand 1 is i32, expected f32"),
        ("exp", (i32,), "exp: operand 0 is i32, expected one of f64, f32"),
        ("where", (f32, f32, f32), "where: operand 0 is f32, expected bool"),
    ]
    for name, operands, message in cases:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            result_dtype(name, operands)


def test_terms_of_stores() -> None:
    invalid(
        "kernel 'k': store to output 0 has terms, expected i64 values in a kernel without rows",
        values=(LOAD,),
        stores=(Store(0, DType.F32, 0, (1,), terms=((0, 4),)),),
    )


def test_kernel_errors() -> None:
    invalid("kernel 'k': load has 0 strides, expected 1", values=(Load(0, DType.F32, ()),))
    invalid(
        "kernel 'k': load of operand 2, there are 2",  # the output is read, too
        values=(Load(2, DType.F32, (1,)),),
    )
    invalid(
        "kernel 'k': load of operand 0 as i32, expected f32",
        values=(Load(0, DType.I32, (1,)),),
    )
    invalid(
        "kernel 'k': load of operand 0 reaches elements before the first",
        values=(Load(0, DType.F32, (-1,), 2),),
    )
    invalid(
        "kernel 'k': index 1 is f32, expected i64",
        values=(LOAD, Bounded(0, 4, wraps=False, error="IndexError: index {}")),
    )
    invalid(
        "kernel 'k': load of operand 0 adds value 0 by 2, expected a bounded value and a stride of "
        "0 or more",
        values=(Index((1,)), Load(0, DType.F32, (0,), 0, ((0, 2),))),
    )
    invalid("kernel 'k': value 1 uses a value not yet defined", values=(LOAD, Apply("neg", (1,))))
    invalid(
        "kernel 'k': store to output 0 has a value of type bool, expected f32",
        values=(LOAD, Apply("isnan", (0,))),
        stores=(Store(0, DType.F32, 1, (1,)),),
    )


def test_builder_shares_equal_values() -> None:
    builder = KernelBuilder("k", (4,))
    x = builder.input(DType.F32)
    assert builder.load(x, (1,)) == builder.load(x, (1,))
    assert builder.constant(DType.F32, 1.0) != builder.constant(DType.F32, 2.0)
    assert builder.cast(0, DType.F32) == 0
