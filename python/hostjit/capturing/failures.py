# SPDX-License-Identifier: Apache-2.0
"""Turn what Dynamo and the functional trace raise into CaptureError, with the user's line."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from pathlib import Path

import torch
from torch._dynamo import exc
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from hostjit.capturing.errors import CaptureError, CaptureFailure

__all__ = [
    "DATA_DEPENDENT",
    "LongLoopError",
    "is_library_file",
    "stops_at_gradients",
    "translate_failure",
]

_PACKAGE = Path(__file__).parents[1]
_LIBRARY_FOLDERS = (
    os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,
    f"{_PACKAGE / 'capturing'}{os.sep}",
    f"{_PACKAGE / 'launching'}{os.sep}",
)
# What fake tensors raise in the trace of a graph that Dynamo has made.
DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException)
# In what Dynamo says of a backward pass, of what prepares one, and of steps of optimizers.
_OF_GRADIENTS = ("autograd", "backward", "requires_grad", "zero_grad", "optimizer")


def is_library_file(filename: str) -> bool:
    """Tell whether a source file belongs to torch or to this package, not to the user."""
    return filename.startswith(_LIBRARY_FOLDERS) or filename.startswith("<eval_with_key>")


def stops_at_gradients(error: CaptureError) -> bool:
    """Tell whether a capture stopped where gradients are computed, or made use of."""
    return error.failure is CaptureFailure.GRAPH_BREAK and any(
        word in error.what.lower() for word in _OF_GRADIENTS
    )


class LongLoopError(exc.Unsupported):
    """A loop that Dynamo should not unroll; nor does it go on behind what came before."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.skip_frame = True


def translate_failure(error: Exception) -> CaptureError:
    """Return the CaptureError for an exception of Dynamo (itself, when it is one already)."""
    if isinstance(error, CaptureError):
        return error
    failure, hint = _classify(error)
    frames: Iterable[traceback.FrameSummary] = getattr(error, "real_stack", None) or ()
    stack = [(each.filename, each.name, each.lineno or 0) for each in frames]
    where = _user_location(stack)
    return CaptureError(failure, _first_lines(error), where=where, hint=hint, stack=stack)


def _classify(error: Exception) -> tuple[CaptureFailure, str]:
    text = str(error)
    elsewhere = (
        "move it out of the compiled function; with fallback=True what is before and after it is "
        "compiled, each for itself"
    )
    if (
        "Observed exception" in text
        or "TypeError when making fake tensor call" in text
        or "modified by an inplace operation" in text
        or (isinstance(error, AssertionError) and text.startswith("Guard failed"))  # torch.export's
        or isinstance(error, (exc.TorchRuntimeError, IndexError))
    ):
        return CaptureFailure.USER_EXCEPTION, "the call raises; run it eagerly to see the error"
    if any(word in text for word in ("Attempted to wrap sparse", "unsupported tensor subclass")):
        return CaptureFailure.UNSUPPORTED_INPUT, "use a plain strided tensor"
    if "SparseTensorImpl" in text:
        return CaptureFailure.UNSUPPORTED_PROGRAM, "use strided tensors, and run this eagerly"
    if isinstance(error, DATA_DEPENDENT):
        # Dynamo has nothing to break the graph at.
        return CaptureFailure.UNSUPPORTED_PROGRAM, "run this function eagerly"
    if isinstance(error, LongLoopError):
        return CaptureFailure.LONG_LOOP, "its passes are compiled, rather"
    user_error = getattr(exc, "UserError", ())
    data_dependent = ("data-dependent", "data dependent", "dynamic shape operator", "tensor.item")
    if any(word in text.lower() for word in data_dependent):
        return (
            CaptureFailure.DATA_DEPENDENT,
            f"replace the decision on tensor values by torch.where, {elsewhere}",
        )
    if isinstance(error, (exc.Unsupported, user_error)):
        return CaptureFailure.GRAPH_BREAK, elsewhere
    if isinstance(error, exc.SkipFrame):
        return CaptureFailure.UNSUPPORTED_PROGRAM, "run this function eagerly"
    return CaptureFailure.UNTRACED, elsewhere


def _first_lines(error: Exception) -> str:
    """The explanation, without Dynamo's hints, developer context and tracebacks."""
    if isinstance(error, DATA_DEPENDENT):
        return f"what {error.func} returns depends on the values of a tensor"
    if "SparseTensorImpl" in str(error):
        return "a tensor is sparse, such as a gradient of nn.Embedding(sparse=True)"
    if isinstance(error, exc.InternalTorchDynamoError) or _is_dynamos_own(error):
        return "PyTorch's tracer fails with an error of its own"
    if "use_numpy_random_stream" in str(error) or "RandomState(" in str(error):
        return "NumPy draws random numbers, which is left to Python"
    lines = []
    for line in str(error).splitlines():
        stripped = line.strip()
        if stripped.startswith(("Hint:", "Developer debug context:", "For more details", "from")):
            break
        if stripped and not stripped.startswith("Set TORCH"):
            lines.append(stripped)
        if len(lines) == 3:
            break
    return " ".join(lines) or type(error).__name__


def _is_dynamos_own(error: Exception) -> bool:
    """Tell whether an attribute is missing of what Dynamo has in place of the user's values."""
    return isinstance(error, AttributeError) and "Variable' object" in str(error)


def _user_location(stack: Iterable[tuple[str, str, int]]) -> str | None:
    frames = [(filename, line) for filename, _, line in stack if not is_library_file(filename)]
    return "{}:{}".format(*frames[-1]) if frames else None
