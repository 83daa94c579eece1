# SPDX-License-Identifier: Apache-2.0
"""What hostjit raises. Errors of the user's program keep the class that eager PyTorch raises."""

from hostjit._C import Error, InternalError
from hostjit.capturing.errors import CaptureError, CaptureFailure

__all__ = ["CaptureError", "CaptureFailure", "Error", "InternalError"]
