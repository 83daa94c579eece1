# SPDX-License-Identifier: Apache-2.0
"""Systems of equations with small triangular matrices, and with what `lu` makes, in place."""

from __future__ import annotations

from hostjit.kernels.dtypes import DType
from hostjit.kernels.matrices.writer import Matrix, Writer
from hostjit.kernels.operation import Value

__all__ = ["solve_lower", "solve_lu", "solve_upper"]


def solve_lower(writer: Writer, matrix: Matrix, vector: Matrix, size: int, *, unit: bool) -> None:
    """Have a vector `b` be the `x` of `L x = b`; nothing above the diagonal is looked at.

    `unit`: the diagonal is taken to be ones.
    """
    writer.each(0, size, lambda i: _eliminate(writer, matrix, vector, i, (0, i), unit))


def solve_upper(writer: Writer, matrix: Matrix, vector: Matrix, size: int, *, unit: bool) -> None:
    """Have a vector `b` be the `x` of `U x = b`; nothing below the diagonal is looked at.

    `unit`: the diagonal is taken to be ones.
    """
    writer.each_down(
        size, lambda i: _eliminate(writer, matrix, vector, i, (i + 1, writer.index(size)), unit)
    )


def _eliminate(
    writer: Writer,
    matrix: Matrix,
    vector: Matrix,
    row: Value,
    known: tuple[Value | int, Value],
    unit: bool,
) -> None:
    """Solve one equation for the element of its row, given others."""
    rest = writer.variable(vector.layout.dtype)
    rest.set(vector.get(row))
    writer.each(*known, lambda k: rest.set(rest.get() - matrix.get(row, k) * vector.get(k)))
    vector.set(rest.get() if unit else rest.get() / matrix.get(row, row), row)


def solve_lu(
    writer: Writer,
    matrix: Matrix,
    pivots: Matrix,
    vector: Matrix,
    size: int,
    *,
    transposes: bool,
) -> None:
    """Have a vector `b` be the `x` of `A x = b`, or of `A.T x = b`, given what `lu` makes of A."""

    def swap(i: Value) -> None:
        found = pivots.get(i)
        register = writer.emitter.builder.sext(found.register, DType.I64.register_type())
        other = Value(writer.emitter, DType.I64, register) - 1
        first, second = vector.get(i), vector.get(other)
        vector.set(second, i)
        vector.set(first, other)

    if transposes:
        solve_lower(writer, matrix.transposed, vector, size, unit=False)
        solve_upper(writer, matrix.transposed, vector, size, unit=True)
        writer.each_down(size, swap)
    else:
        writer.each(0, size, swap)
        solve_lower(writer, matrix, vector, size, unit=True)
        solve_upper(writer, matrix, vector, size, unit=False)
