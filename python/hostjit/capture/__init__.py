# SPDX-License-Identifier: Apache-2.0
"""Capture: from a callable and one call's arguments to a functional ATen program."""

from hostjit.capture.capture import capture
from hostjit.capture.errors import CaptureError, CaptureFailure
from hostjit.capture.program import ArgumentLeaf, BoundTensor, CapturedProgram
from hostjit.capture.traced_graph import source_location

__all__ = [
    "ArgumentLeaf",
    "BoundTensor",
    "CaptureError",
    "CaptureFailure",
    "CapturedProgram",
    "capture",
    "source_location",
]
