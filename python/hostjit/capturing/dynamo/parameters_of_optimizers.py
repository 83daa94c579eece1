# SPDX-License-Identifier: Apache-2.0
"""Tensors that code is given, and finds as parameters of an optimizer: which of them they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch._dynamo import guards
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.source import is_from_optimizer_source

from hostjit.replacements import replaced_attribute

__all__ = ["guarding_parameters_of_optimizers"]


@contextlib.contextmanager
def guarding_parameters_of_optimizers() -> Iterator[None]:
    """Have a guard on a tensor that is met twice where an optimizer has one of the two places.

    Dynamo leaves it out: code that is given a parameter p, and looks up `optimizer.state[p]`, was
    given the state of the parameter that it was compiled for.
    """
    original = GuardBuilder.DUPLICATE_INPUT

    def DUPLICATE_INPUT(self: GuardBuilder, guard: Any, source_b: Any) -> None:  # noqa: N802
        places = (guard.originating_source, source_b)
        if len({is_from_optimizer_source(place) for place in places}) == 1:
            original(self, guard, source_b)
            return
        with replaced_attribute(guards, "is_from_optimizer_source", lambda _: False):
            original(self, guard, source_b)

    with replaced_attribute(GuardBuilder, "DUPLICATE_INPUT", DUPLICATE_INPUT):
        yield
