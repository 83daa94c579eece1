# SPDX-License-Identifier: Apache-2.0
"""Where the elements of a batch of matrices are in memory."""

from __future__ import annotations

import dataclasses

from hostjit.kernels.dtypes import DType

__all__ = ["Layout"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Strides of a batch of matrices, in elements.

    Attributes:
        dtype: of the elements.
        batch: along the dims of the batch.
        row: from one row to the next. Of vectors, from one element to the next.
        column: from one column to the next; 0 for vectors and numbers.
    """

    dtype: DType
    batch: tuple[int, ...]
    row: int = 0
    column: int = 0

    @property
    def transposed(self) -> Layout:
        """The same elements, as matrices whose rows are these columns."""
        return dataclasses.replace(self, row=self.column, column=self.row)
