# SPDX-License-Identifier: Apache-2.0
"""LU and Cholesky factorizations of a small matrix, in place.

In the order of LAPACK's getf2 and potf2 (Golub and Van Loan, Matrix Computations, 4th edition,
3.4.1 and 4.2.5). MKL computes what `lu` does to the bit, where it has no fused multiply-add, up to
16 rows: so both find the same matrices singular.
"""

from __future__ import annotations

from hostjit.kernels.dtypes import DType
from hostjit.kernels.matrices.writer import Matrix, Writer
from hostjit.kernels.operation import Value

__all__ = ["cholesky", "determinant_of_lu", "lu", "signed_logarithm_of_lu"]

# The smallest number whose reciprocal is finite.
_SMALLEST = {DType.F32: 2.0**-126, DType.F64: 2.0**-1022}
# The last division of so small matrices is one; others multiply by the reciprocal.
_MOST_DIVIDED = 4


def lu(writer: Writer, matrix: Matrix, pivots: Matrix, info: Matrix, size: int) -> None:
    """Have a matrix be L and U of it with some rows swapped, L without its ones.

    Args:
        writer: of the kernel.
        matrix: of `size` rows and columns.
        pivots: a vector of i32: the row, counted from 1, that each was swapped with, in order.
        info: an i32: the first place, counted from 1, where U has a zero on its diagonal; else 0.
        size: at least 1.
    """
    zero = writer.emitter.constant(DType.I32, 0)
    info.set(zero)
    place, most = writer.variable(DType.I64), writer.variable(matrix.layout.dtype)

    def step(k: Value) -> None:
        place.set(k)
        most.set(matrix.get(k, k).intrinsic("fabs"))

        def compare(i: Value) -> None:
            found = matrix.get(i, k).intrinsic("fabs")
            is_larger = found > most.get()
            most.set(is_larger.where(found, most.get()))
            place.set(is_larger.where(i, place.get()))

        writer.each(k + 1, size, compare)
        pivot = place.get()
        pivots.set(_as_i32(pivot + 1), k)
        with writer.either(most.get().differs(0)) as (is_regular, is_singular):
            with is_regular:
                with writer.when(pivot.differs(k)):
                    writer.each(0, size, lambda j: _swap(matrix.column(j), k, pivot))
                _divide(writer, matrix, k, size)
            with is_singular:
                is_first = info.get().equals(zero)
                info.set(is_first.where(_as_i32(k + 1), info.get()))

        def update(j: Value) -> None:
            factor, column = matrix.get(k, j), matrix.column(j)

            def subtract(i: Value) -> None:
                column.set(column.get(i) - matrix.get(i, k) * factor, i)

            writer.each(k + 1, size, subtract)

        writer.each(k + 1, size, update)

    writer.each(0, size, step)


def _divide(writer: Writer, matrix: Matrix, k: Value, size: int) -> None:
    """Divide what is below the diagonal by what is on it."""
    divisor = matrix.get(k, k)
    multiplies = divisor.intrinsic("fabs") >= _SMALLEST[matrix.layout.dtype]
    if size <= _MOST_DIVIDED:
        multiplies = multiplies & k.differs(size - 2)
    with writer.either(multiplies) as (by_product, by_quotient):
        with by_product:
            factor = divisor.of(1) / divisor
            writer.each(k + 1, size, lambda i: matrix.set(matrix.get(i, k) * factor, i, k))
        with by_quotient:
            writer.each(k + 1, size, lambda i: matrix.set(matrix.get(i, k) / divisor, i, k))


def _swap(vector: Matrix, first: Value, second: Value) -> None:
    a, b = vector.get(first), vector.get(second)
    vector.set(b, first)
    vector.set(a, second)


def _as_i32(value: Value) -> Value:
    register = value.emitter.builder.trunc(value.register, DType.I32.register_type())
    return Value(value.emitter, DType.I32, register)


def determinant_of_lu(writer: Writer, matrix: Matrix, pivots: Matrix, size: int) -> Value:
    """Return the determinant of the matrix that `lu` has made another of."""
    product = writer.variable(matrix.layout.dtype)
    product.set(writer.emitter.constant(matrix.layout.dtype, 1))

    def step(k: Value) -> None:
        factor = product.get() * matrix.get(k, k)
        is_swapped = pivots.get(k).differs(_as_i32(k + 1))
        product.set(is_swapped.where(-factor, factor))

    writer.each(0, size, step)
    return product.get()


def signed_logarithm_of_lu(
    writer: Writer, matrix: Matrix, pivots: Matrix, size: int
) -> tuple[Value, Value]:
    """Return the sign of what `determinant_of_lu` returns, and the logarithm of its magnitude."""
    dtype = matrix.layout.dtype
    sign, total = writer.variable(dtype), writer.variable(dtype)
    sign.set(writer.emitter.constant(dtype, 1))
    total.set(writer.emitter.constant(dtype, 0))

    def step(k: Value) -> None:
        factor = matrix.get(k, k)
        is_negative = (factor < 0) ^ pivots.get(k).differs(_as_i32(k + 1))
        signed = is_negative.where(-sign.get(), sign.get())
        sign.set(((factor > 0) | (factor < 0)).where(signed, factor.of(0)))
        total.set(total.get() + factor.intrinsic("fabs").math("log"))

    writer.each(0, size, step)
    return sign.get(), total.get()


def cholesky(writer: Writer, matrix: Matrix, info: Matrix, size: int) -> None:
    """Have the lower triangle of a matrix be its Cholesky factor.

    Args:
        writer: of the kernel.
        matrix: of `size` rows and columns; nothing above the diagonal is looked at.
        info: an i32: the first leading minor, by its size, that is not positive; else 0. Columns
            from there on stay what they were.
        size: at least 1.
    """
    info.set(writer.emitter.constant(DType.I32, 0))
    total = writer.variable(matrix.layout.dtype)

    def rest(i: Value, j: Value) -> Value:
        total.set(matrix.get(i, j))
        writer.each(0, j, lambda k: total.set(total.get() - matrix.get(i, k) * matrix.get(j, k)))
        return total.get()

    def step(j: Value) -> None:
        with writer.when(info.get().equals(0)):
            square = rest(j, j)
            with writer.either(square > 0) as (is_positive, is_not):
                with is_positive:
                    diagonal = square.intrinsic("sqrt")
                    matrix.set(diagonal, j, j)
                    writer.each(j + 1, size, lambda i: matrix.set(rest(i, j) / diagonal, i, j))
                with is_not:
                    info.set(_as_i32(j + 1))

    writer.each(0, size, step)
