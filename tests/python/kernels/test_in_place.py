# SPDX-License-Identifier: Apache-2.0
"""Which operands of a kernel may share memory."""

from __future__ import annotations

from hostjit.kernels import DType, KernelBuilder, in_place_pairs

F32 = DType.F32


def test_inputs_read_where_the_output_is_written() -> None:
    b = KernelBuilder("k", (4, 8))
    x, y, row, out = b.input(F32), b.input(F32), b.input(F32), b.output(F32)
    total = b.apply("add", b.load(x, (8, 1)), b.load(y, (8, 1)))
    b.store(out, b.apply("mul", total, b.load(row, (0, 1))), (8, 1))
    assert in_place_pairs(b.build()) == [(0, 0), (1, 0)]


def test_not_when_another_point_reads_there() -> None:
    b = KernelBuilder("k", (8, 8))
    x, shifted, out = b.input(F32), b.input(F32), b.output(F32)
    both = b.apply("add", b.load(x, (8, 1)), b.load(x, (1, 8)))
    b.store(out, b.apply("add", both, b.load(shifted, (8, 1), 4)), (8, 1))
    assert in_place_pairs(b.build()) == []


def test_dimensions_of_size_one_have_no_stride() -> None:
    b = KernelBuilder("k", (1, 8))
    b.store(b.output(F32), b.load(b.input(F32), (1, 1)), (8, 1))
    assert in_place_pairs(b.build()) == [(0, 0)]


def test_elements_of_one_size() -> None:
    b = KernelBuilder("k", (8,))
    value = b.load(b.input(F32), (1,))
    b.store(b.output(DType.I32), b.cast(value, DType.I32), (1,))
    b.store(b.output(DType.F64), b.cast(value, DType.F64), (1,))
    assert in_place_pairs(b.build()) == [(0, 0)]


def test_rows_are_read_again() -> None:
    b = KernelBuilder("k", (4, 8), num_reduced=1)
    value = b.load(b.input(F32), (8, 1))
    b.store(b.output(F32), b.apply("sub", value, b.reduce("max", value)), (8, 1))
    assert in_place_pairs(b.build()) == []


def test_what_is_found_by_index_is_read_anywhere() -> None:
    b = KernelBuilder("k", (8,))
    numbers, source = b.input(DType.I64), b.input(DType.I64)
    place = b.bounded(b.load(numbers, (1,)), 8, "IndexError: index {}")
    b.store(b.output(DType.I64), b.load(source, (0,), 0, ((place, 1),)), (1,))
    assert in_place_pairs(b.build()) == []


def test_not_backwards() -> None:
    b = KernelBuilder("k", (8,))
    b.store(b.output(F32), b.load(b.input(F32), (-1,), 7), (1,))
    assert in_place_pairs(b.build()) == []


def test_not_where_tiles_overlap() -> None:
    for side, pairs in ((64, [(0, 0)]), (65, [])):
        b = KernelBuilder("k", (side, side))
        x, across, out = b.input(F32), b.input(F32), b.output(F32)
        total = b.apply("add", b.load(x, (side, 1)), b.load(across, (1, side)))
        b.store(out, total, (side, 1))
        assert in_place_pairs(b.build()) == pairs
