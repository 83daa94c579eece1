# SPDX-License-Identifier: Apache-2.0
"""Recording: what a call runs below Python becomes a program that later calls replay."""

from hostjit.recording.capture import capture
from hostjit.recording.errors import MismatchError

__all__ = ["MismatchError", "capture"]
