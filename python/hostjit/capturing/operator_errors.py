# SPDX-License-Identifier: Apache-2.0
"""Captures that stop at what an operator raises, as those of torch before 2.14 do.

Dynamo of torch 2.14 goes on in the handler of the code. What it raises there is a RuntimeError in
place of any other error, and its text is Dynamo's, not the operator's.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

from torch._dynamo import exc, graph_break_hints, utils

__all__ = ["stopping_at_operator_errors"]

_Observed: Any = getattr(exc, "FakeTensorObservedException", None)


@contextlib.contextmanager
def stopping_at_operator_errors() -> Iterator[None]:
    """Raise TorchRuntimeError where an operator raises for fake tensors, in this thread."""
    if _Observed is None:
        yield
        return
    owner = threading.get_ident()
    original: Any = utils._get_fake_value_impl

    def get_fake_value(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except _Observed as error:
            if threading.get_ident() != owner:
                raise
            text = exc.format_graph_break_message(
                "RuntimeError when making fake tensor call",
                "",
                str(error),
                [*graph_break_hints.USER_ERROR],
            )
            raise exc.TorchRuntimeError(text, error.real_stack) from error

    with mock.patch.object(utils, "_get_fake_value_impl", get_fake_value):
        yield
