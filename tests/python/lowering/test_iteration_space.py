# SPDX-License-Identifier: Apache-2.0
"""Bringing shapes together by splitting dimensions."""

from __future__ import annotations

from torch.fx import Graph

from hostjit.lowering.iteration_space import IterationSpace, Radix, row_major

GRAPH = Graph()
A, B, C = (GRAPH.placeholder(name) for name in "abc")


def test_row_major_and_translate() -> None:
    assert row_major((2, 3, 4)) == (12, 4, 1)
    assert row_major((3, 0)) == (1, 1)
    radix = Radix.of_shape((4, 6))
    assert radix.translate((6, 1), (4, 6), (1, 4)) == (1, 4)
    assert radix.translate((6, 3, 1), (4, 2, 3), (1, 4)) == (1, 12, 4)
    assert radix.translate((1,), (24,), (6, 1)) is None


def test_refined_splits_every_member() -> None:
    space = IterationSpace.of_shape(A, (24, 1)).with_member(B, (1,))
    refined = space.refined(A, Radix.of_shape((4, 6)))
    assert refined == IterationSpace((4, 6), {A: (6, 1), B: (6, 1)})
    assert IterationSpace.of_shape(A, (4, 6)).refined(A, Radix.of_shape((3, 8))) is None


def test_merged_aligns_at_the_common_member() -> None:
    left = IterationSpace((4, 6), {A: (6, 1), C: (6, 1)})
    right = IterationSpace((6, 4), {B: (4, 1), C: (1, 6)})
    merged = left.merged(right, C)
    assert merged == IterationSpace((4, 6), {A: (6, 1), B: (1, 4), C: (6, 1)})
    assert left.merged(IterationSpace((3, 8), {C: (8, 1)}), C) is None
