# SPDX-License-Identifier: Apache-2.0
"""Tensors of many numbers that a call brings: `torch.tensor(rewards)`. Python makes these.

So few numbers as the core has place for are open ones. More would be compared, each with its value,
and every call would have others.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.exc import unimplemented
from torch._dynamo.source import LocalSource
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.lists import BaseListVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

from hostjit.capturing.numbers.open_numbers import MOST_NUMBERS
from hostjit.capturing.unread import is_item
from hostjit.replacements import replaced_attribute

__all__ = ["is_brought", "stopping_at_many_numbers"]

_MAKERS = frozenset({torch.tensor, torch.as_tensor, torch.asarray})


@contextlib.contextmanager
def stopping_at_many_numbers() -> Iterator[None]:
    """Have Dynamo stop there, in this thread, before it looks at one of them."""
    owner = threading.get_ident()
    call_function = TorchInGraphFunctionVariable.call_function

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        is_asked = threading.get_ident() == owner and self.value in _MAKERS
        if is_asked and not (tx.one_graph or tx.error_on_graph_break):
            given = itertools.chain(args, kwargs.values())
            if any(_is_long(_numbers_in(value)) for value in given):
                unimplemented(
                    gb_type="tensor of many numbers",
                    context=f"{self.value.__name__}()",
                    explanation=f"A call brings more than {MOST_NUMBERS} numbers for a tensor.",
                    hints=["Pass them as a tensor."],
                )
        return call_function(self, tx, args, kwargs)

    with replaced_attribute(TorchInGraphFunctionVariable, "call_function", call):
        yield


def _is_long(numbers: Iterator[Any]) -> bool:
    return next(itertools.islice(numbers, MOST_NUMBERS, None), None) is not None


def _numbers_in(value: Any) -> Iterator[Any]:
    """Yield the numbers in lists and tuples that the caller brought, of any depth."""
    kind = type(value)  # `isinstance` would look at it
    if issubclass(kind, LazyVariableTracker) and not value.is_realized():
        if is_brought(value.source):
            yield from _plain_numbers(value.peek_value())
        return
    if kind is LazyVariableTracker:
        value = value.unwrap()
    if isinstance(value, BaseListVariable):
        for item in value.items:
            yield from _numbers_in(item)
    elif isinstance(value, SymNodeVariable) and is_brought(value.source):
        yield value


def _plain_numbers(value: Any) -> Iterator[Any]:
    kind = type(value)
    if kind is int or kind is float or kind is bool:
        yield value
    elif kind is list or kind is tuple:
        for item in value:
            yield from _plain_numbers(item)


def is_brought(source: Any) -> bool:
    """Tell whether something is an argument, or an item in one."""
    while is_item(source):
        source = source.base
    return isinstance(source, LocalSource)
