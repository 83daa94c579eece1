# SPDX-License-Identifier: Apache-2.0
"""Inputs without dims whose value an operator takes for a number, as `x[i]` does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.source import FloatTensorSource
from torch._dynamo.variables import builder
from torch._subclasses.fake_tensor import FakeTensor

from hostjit.replacements import replaced_attribute

__all__ = ["items_unknown"]


@contextlib.contextmanager
def items_unknown() -> Iterator[None]:
    """Have Dynamo stop there, in this thread, as it does for values that are computed.

    It would have a symbol for the value of an input, which a program does not know. Floats that are
    arguments themselves keep theirs.
    """
    owner = threading.get_ident()
    original = builder.wrap_to_fake_tensor_and_record

    def wrap(*args: Any, source: Any, **kwargs: Any) -> Any:
        fake = original(*args, source=source, **kwargs)
        is_input = isinstance(fake, FakeTensor) and not isinstance(source, FloatTensorSource)
        if is_input and threading.get_ident() == owner:
            fake.item_memo = None
        return fake

    with replaced_attribute(builder, "wrap_to_fake_tensor_and_record", wrap):
        yield
