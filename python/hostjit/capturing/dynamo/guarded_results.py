# SPDX-License-Identifier: Apache-2.0
"""Guards that Dynamo leaves out: on what a call returns unseen, and on what it meets twice."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from torch._dynamo.guards import GuardBuilder
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.variables import builder
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.lists import BaseListVariable

from hostjit.capturing.dynamic_dims import refusal
from hostjit.replacements import replaced_attribute

__all__ = ["guarding_duplicates", "guarding_results"]


@contextlib.contextmanager
def guarding_results() -> Iterator[None]:
    """Let Dynamo guard all of a result, in this thread, not only what is computed with.

    A global that is returned as it is needs no guard where Dynamo's bytecode reads it anew at every
    call. It does where the result is known beforehand.
    """
    owner = threading.get_ident()
    original = OutputGraph.compile_subgraph

    def compile_subgraph(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == owner:
            LazyVariableTracker.realize_all(tx.stack)
            _refuse_what_holds_numbers(tx.stack)
        return original(self, tx, *args, **kwargs)

    with replaced_attribute(OutputGraph, "compile_subgraph", compile_subgraph):
        yield


def _refuse_what_holds_numbers(results: Iterable[Any]) -> None:
    """Raise for `vars(x)` and texts of objects in a result: numbers in them are not open."""
    for result in results:
        found = result.realize()
        kind = type(found).__name__
        if kind == "DunderDictVariable" or (kind == "StringFormatVariable" and found.sym_args):
            raise refusal("a result is made of what an object holds")
        if isinstance(found, BaseListVariable):
            _refuse_what_holds_numbers(found.items)
        elif isinstance(found, ConstDictVariable):
            _refuse_what_holds_numbers(found.items.values())


@contextlib.contextmanager
def guarding_duplicates() -> Iterator[None]:
    """Have a guard on each object that is met twice, be one local and the other global too.

    Dynamo leaves the guard out then ("we miss a guard here" in make_dupe_guard).
    """
    original = builder.make_dupe_guard

    def make(source: Any, earlier: Any) -> Any:
        made = original(source, earlier)
        if made is None and earlier and earlier != source:
            made = functools.partial(GuardBuilder.DUPLICATE_INPUT, source_b=earlier)
        return made

    with replaced_attribute(builder, "make_dupe_guard", make):
        yield
