# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers as programs: one call updates all parameters."""

from hostjit.optimizers.compilation import (
    OptimizerCompilation,
    compilation_as_called,
    compilation_of_step,
    optimizer_of,
)

__all__ = [
    "OptimizerCompilation",
    "compilation_as_called",
    "compilation_of_step",
    "optimizer_of",
]
