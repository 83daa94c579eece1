# SPDX-License-Identifier: Apache-2.0
"""Steps of PyTorch's optimizers as programs: one call updates all parameters."""

from hostjit.optimizers.compilation import OptimizerCompilation, is_step
from hostjit.optimizers.rules import RULES

__all__ = ["RULES", "OptimizerCompilation", "is_step"]
