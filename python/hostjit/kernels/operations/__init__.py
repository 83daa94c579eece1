# SPDX-License-Identifier: Apache-2.0
"""The operations, one file per family. Importing this package fills the table."""

from hostjit.kernels import elementary
from hostjit.kernels.operations import (
    activation,
    arithmetic,
    bitwise,
    comparison,
    rounding,
    transcendental,
)

__all__ = [
    "activation",
    "arithmetic",
    "bitwise",
    "comparison",
    "elementary",
    "rounding",
    "transcendental",
]
