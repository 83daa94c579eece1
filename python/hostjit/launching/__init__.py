# SPDX-License-Identifier: Apache-2.0
"""Kernels that users bring: what they are made of, and their launches."""

from hostjit.launching.launch_operator import launch
from hostjit.launching.make_kernel import kernel
from hostjit.launching.user_kernel import Kernel

__all__ = ["Kernel", "kernel", "launch"]
