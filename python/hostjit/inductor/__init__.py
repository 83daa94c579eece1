# SPDX-License-Identifier: Apache-2.0
"""Inductor's kernels and schedule with hostjit's host side."""

from hostjit.inductor.lower import lower

__all__ = ["lower"]
