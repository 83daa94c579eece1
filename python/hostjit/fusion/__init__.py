# SPDX-License-Identifier: Apache-2.0
"""nvFuser's Python front end: programs that are defined operation by operation."""

from hostjit.fusion.data_type import DataType
from hostjit.fusion.definition import FusionDefinition
from hostjit.fusion.values import Scalar, Tensor

__all__ = ["DataType", "FusionDefinition", "Scalar", "Tensor"]
