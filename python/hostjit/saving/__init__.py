# SPDX-License-Identifier: Apache-2.0
"""Compiled functions in files: programs, their code, constants, and what calls are checked for."""

from hostjit.saving.load import load
from hostjit.saving.save import save

__all__ = ["load", "save"]
