# SPDX-License-Identifier: Apache-2.0
"""`assert torch.isfinite(x).all()`: Dynamo makes it an operator, which raises a RuntimeError.

Where the code that is traced, or a caller of it, handles an AssertionError, it is a decision as any
other. Elsewhere the operator is told what it stands for, and programs raise that.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo import symbolic_convert
from torch._dynamo.variables.base import VariableTracker

from hostjit.capturing.dynamo.operator_errors import handled_around
from hostjit.replacements import replaced_attribute

__all__ = ["asserting_as_python"]

# csrc/bindings/program_call.cpp looks for it.
_PREFIX = "AssertionError: "
# Dynamo's text for an assertion without one.
_NO_TEXT = "assertion error"


@contextlib.contextmanager
def asserting_as_python() -> Iterator[None]:
    """Have Dynamo follow assertions so, in this thread."""
    owner = threading.get_ident()
    name = "_detect_and_normalize_assert_statement"
    detect: Any = getattr(symbolic_convert, name)

    def detect_unhandled(tx: Any, truth_fn: Any, push: bool) -> bool:
        here = threading.get_ident() == owner
        if here and handled_around(tx).any_of(AssertionError):
            return False
        if not detect(tx, truth_fn, push):
            return False
        if here:
            text = tx.pop().as_python_constant()
            said = "" if text == _NO_TEXT else str(text)
            tx.push(VariableTracker.build(tx, _PREFIX + said))
        return True

    with replaced_attribute(symbolic_convert, name, detect_unhandled):
        yield
