# SPDX-License-Identifier: Apache-2.0
"""Modules that make their parameters at the first call, such as `torch.nn.LazyLinear`.

Dynamo would make them while it looks, then put torch's generator back to where it was before: the
numbers that they start with would be drawn a second time by what comes next.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.replacements import replaced_attribute

__all__ = ["refusing_lazy_modules"]


@contextlib.contextmanager
def refusing_lazy_modules() -> Iterator[None]:
    """Raise CaptureError where Dynamo would make the parameters of a module, in this thread."""
    owner = threading.get_ident()
    variables = importlib.import_module("torch._dynamo.variables.nn_module")
    original = variables.initialize_lazy_module

    def initialize(tx: Any, module: Any, args: Any, kwargs: Any) -> None:
        if threading.get_ident() == owner and hasattr(module, "_initialize_hook"):
            raise CaptureError(
                CaptureFailure.LAZY_MODULE,
                f"{type(module).__name__} makes its parameters at its first call",
                hint="call it once before",
            )
        original(tx, module, args, kwargs)

    with replaced_attribute(variables, "initialize_lazy_module", initialize):
        yield
