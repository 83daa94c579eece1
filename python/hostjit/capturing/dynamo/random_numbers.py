# SPDX-License-Identifier: Apache-2.0
"""Numbers that Python's `random` draws in code that Dynamo follows: Python draws them itself.

Followed, a number becomes a tensor without dims: it would round, wrap around and take part in type
promotion as no number does. And Dynamo draws an example of each, from the generator itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.exc import unimplemented
from torch._dynamo.source import RandomValueSource
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.misc import RandomVariable

from hostjit.replacements import replaced_attribute, replaced_items

__all__ = ["stopping_at_random_numbers"]


@contextlib.contextmanager
def stopping_at_random_numbers() -> Iterator[None]:
    """Have Dynamo stop where a number is drawn, in this thread; the generator stays as it is."""
    owner = threading.get_ident()
    was_drawn = False
    original = VariableBuilder.wrap_unspecialized_primitive

    def wrap(self: Any, value: Any) -> Any:
        nonlocal was_drawn
        if isinstance(self.source, RandomValueSource) and threading.get_ident() == owner:
            was_drawn = True
            _stop()
        return original(self, value)

    def stopping(draw: Any) -> Any:
        def call(*given: Any) -> Any:
            if threading.get_ident() == owner:
                _stop()
            return draw.handler(*given)

        return dataclasses.replace(draw, handler=call)

    # Torch 2.14 and later draw these for the trace alone.
    listed = getattr(RandomVariable, "tp_methods", {})
    stopped = {name: stopping(listed[name]) for name in ("sample", "shuffle") if name in listed}

    state = random.getstate()
    try:
        with (
            replaced_attribute(VariableBuilder, "wrap_unspecialized_primitive", wrap),
            replaced_items(listed, stopped),
        ):
            yield
    finally:
        if was_drawn:  # else other threads keep what they drew meanwhile
            random.setstate(state)


def _stop() -> None:
    unimplemented(
        gb_type="number of Python's random",
        context="",
        explanation="Python's random draws a number.",
        hints=[],
    )
