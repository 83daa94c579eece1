# SPDX-License-Identifier: Apache-2.0
"""Errors that handlers of signals raise while a call is captured and compiled: a timeout, say.

They are no errors of the code, for which a call would run otherwise, and go to the caller.
"""

from __future__ import annotations

import signal
import traceback
import types
from collections.abc import Iterator

__all__ = ["raise_of_handler"]


def raise_of_handler(error: BaseException) -> None:
    """Raise what a handler has raised, if that is what an error comes from."""
    codes = {*_codes_of_handlers()}
    seen: set[int] = set()
    found: BaseException | None = error
    raised: BaseException | None = None
    while codes and found is not None and id(found) not in seen:
        seen.add(id(found))
        frames = [frame for frame, _ in traceback.walk_tb(found.__traceback__)]
        if frames and frames[-1].f_code in codes:
            raised = found  # or what it was raised for: others are given its traceback
        found = found.__cause__ or found.__context__
    if raised is not None:
        raise raised


def _codes_of_handlers() -> Iterator[types.CodeType]:
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        function = getattr(handler, "__func__", handler)
        if isinstance(function, types.FunctionType):
            yield function.__code__
