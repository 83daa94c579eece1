# SPDX-License-Identifier: Apache-2.0
"""Steps of PyTorch's optimizers as programs: one call updates all parameters."""

from hostjit.optimizers.compilation import OptimizerCompilation, is_step

__all__ = ["OptimizerCompilation", "is_step"]
