# SPDX-License-Identifier: Apache-2.0
"""Where a long sum is cut: rounding errors grow with the longest chain of additions."""

from __future__ import annotations

__all__ = ["Chunks", "cascade"]

# For each loop, from the outermost, its chunks: how many iterations, and the level of the total
# that takes their sum. Ascending; level 0 takes the sums of elements, level 1 those of level 0.
Chunks = list[list[tuple[int, int]]]


def cascade(sizes: tuple[int, ...], first: int, step: int) -> Chunks:
    """Cut nested loops so that about `first` elements, then `step` sums each, are added up.

    Example: cascade((4096,), 32, 32) == [[(32, 0), (1024, 1)]]
    """
    chunks: Chunks = [[] for _ in sizes]
    inside, target, level = 1, first, 0
    for depth in reversed(range(len(sizes))):
        while inside * sizes[depth] >= 2 * target:
            count = _divisor_near(sizes[depth], max(1, target // inside))
            chunks[depth].append((count, level))
            target, level = inside * count * step, level + 1
        inside *= sizes[depth]
    return chunks


def _divisor_near(size: int, count: int) -> int:
    """`count`, or a divisor of `size` close to it, which leaves no rest to write a loop for."""
    near = sorted(range(count - count // 4, count + count // 2 + 1), key=lambda n: abs(n - count))
    return next((n for n in near if n and size % n == 0), count)
