# SPDX-License-Identifier: Apache-2.0
"""Recording: what a call runs below Python becomes a program that later calls replay."""

from hostjit.recording.capture import capture
from hostjit.recording.mismatch import MismatchError
from hostjit.recording.replay import Recording

__all__ = ["MismatchError", "Recording", "capture"]
