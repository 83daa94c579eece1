# SPDX-License-Identifier: Apache-2.0
"""Tensors that code is given, and finds in other places, too: which of them they are.

Dynamo compares neither what is a parameter of an optimizer, nor what is not one of the parameters
that code has looked at, nor one of the keys of a dict.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._dynamo import config, guards
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import is_from_optimizer_source
from torch._dynamo.variables import LazyVariableTracker, TensorVariable

from hostjit.capturing.dynamo.identities import before_identities
from hostjit.capturing.dynamo.looked_up_keys import OF_CONTAINERS, hashed
from hostjit.replacements import replaced_attribute

__all__ = ["guarding_compared_tensors", "guarding_parameters_of_optimizers"]


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


@contextlib.contextmanager
def guarding_compared_tensors() -> Iterator[None]:
    """Have guards on tensors that code compares, `q is p`, or looks up, `p in state`.

    A tensor that is looked up has to be the same at later calls, and of those that are compared,
    parameters included, no others may be one.
    """
    owner = threading.get_ident()
    skips = "skip_no_tensor_aliasing_guards_on_parameters"
    kind = hashed()
    init_key = kind.__init__

    def init(self: Any, key: Any) -> None:
        init_key(self, key)
        if threading.get_ident() == owner:
            source = _source_of_tensor(key)
            if source is not None and not _is_key(source):
                install_guard(source.make_guard(GuardBuilder.ID_MATCH))

    def note(values: Sequence[Any]) -> None:
        sources = [*map(_source_of_tensor, values)]
        if None in sources:
            return
        setattr(config, skips, False)
        others = [source for source in sources if not _is_key(source)]
        if len(others) == 1:
            install_guard(others[0].make_guard(GuardBuilder.ID_MATCH))

    with (
        config.patch({skips: getattr(config, skips)}),
        replaced_attribute(kind, "__init__", init),
        before_identities(note),
    ):
        yield


def _is_key(source: Any) -> bool:
    """Whether it is what a container looks up by: the guards on the container tell which it is."""
    return type(source).__name__ in OF_CONTAINERS


def _source_of_tensor(variable: Any) -> Any:
    """Where a tensor that Dynamo follows comes from; None for others, and those that code makes."""
    if isinstance(variable, LazyVariableTracker):
        if not variable.is_realized() and not isinstance(variable.original_value(), torch.Tensor):
            return None
        variable = variable.realize()
    return variable.source if isinstance(variable, TensorVariable) else None
