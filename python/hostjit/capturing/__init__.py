# SPDX-License-Identifier: Apache-2.0
"""Capture: from a callable and one call's arguments to a functional ATen program."""

from hostjit.capturing.capture import capture
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.program import ArgumentLeaf, BoundTensor, CapturedProgram
from hostjit.capturing.traced_graph import source_location

__all__ = [
    "ArgumentLeaf",
    "BoundTensor",
    "CaptureError",
    "CaptureFailure",
    "CapturedProgram",
    "capture",
    "source_location",
]
