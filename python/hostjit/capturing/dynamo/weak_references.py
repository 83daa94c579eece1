# SPDX-License-Identifier: Apache-2.0
"""What weak references refer to: calls that use one run eagerly.

A program compares what is in the object, and keeps it alive by that. So `reference()` would never
give None again, and a `WeakSet` never become empty. Not so where the code has the object from
elsewhere, such as a module whose parts refer back to it. PyTorch's own code is taken to ask for
what others keep.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.variables.misc import WeakRefVariable

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.replacements import replaced_attribute

__all__ = ["refusing_weak_references"]

_PYTORCH = os.path.dirname(torch.__file__) + os.sep


@contextlib.contextmanager
def refusing_weak_references() -> Iterator[None]:
    """Raise CaptureError where code uses a weak reference, in this thread."""
    owner = threading.get_ident()
    kind: Any = WeakRefVariable
    original = kind.build

    def build(tx: Any, reference: weakref.ReferenceType[Any], *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == owner and not tx.f_code.co_filename.startswith(_PYTORCH):
            found = reference()
            name = type(found).__qualname__
            is_kept = found is None or found in tx.output.side_effects
            del found  # the error has this frame
            if not is_kept:
                raise CaptureError(
                    CaptureFailure.UNSUPPORTED_PROGRAM,
                    f"a weak reference to an object ({name}) is used, which a program would keep "
                    "alive",
                    hint="use it outside of the compiled function",
                )
        return original(tx, reference, *args, **kwargs)

    with replaced_attribute(kind, "build", staticmethod(build)):
        yield
