# SPDX-License-Identifier: Apache-2.0
"""Where a long sum is cut: rounding errors grow with the longest chain of additions."""

from __future__ import annotations

from collections.abc import Sequence

from hostjit.kernels.sizes import Size, SymbolicSize

__all__ = ["Chunks", "cascade"]

# For each loop, from the outermost, its chunks: how many iterations, and the level of the total
# that takes their sum. Ascending; level 0 takes the sums of elements, level 1 those of level 0.
Chunks = list[list[tuple[int, int]]]


# Of a loop whose iterations are only known at the call: longer chunks are not worth their code.
_LONGEST_CHUNK = 4096


def cascade(sizes: Sequence[Size], first: int, step: int) -> Chunks:
    """Cut nested loops so that about `first` elements, then `step` sums each, are added up.

    Loops around one whose iterations are only known at the call are left whole.

    Example: cascade((4096,), 32, 32) == [[(32, 0), (1024, 1)]]
    """
    chunks: Chunks = [[] for _ in sizes]
    inside, target, level = 1, first, 0
    for depth in reversed(range(len(sizes))):
        size = sizes[depth]
        if isinstance(size, SymbolicSize):
            while target <= _LONGEST_CHUNK:
                chunks[depth].append((max(1, target // inside), level))
                target, level = target * step, level + 1
            break
        while inside * size >= 2 * target:
            count = _divisor_near(size, max(1, target // inside))
            chunks[depth].append((count, level))
            target, level = inside * count * step, level + 1
        inside *= size
    return chunks


def _divisor_near(size: int, count: int) -> int:
    """`count`, or a divisor of `size` close to it, which leaves no rest to write a loop for."""
    near = sorted(range(count - count // 4, count + count // 2 + 1), key=lambda n: abs(n - count))
    return next((n for n in near if n and size % n == 0), count)
