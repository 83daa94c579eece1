# SPDX-License-Identifier: Apache-2.0
"""Which dims of a call's tensors a capture leaves open, and how Dynamo is told."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import torch
from torch._dynamo.source import TensorPropertySource

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.quiet_log import without_log_of_failures
from hostjit.replacements import replaced_attribute

__all__ = [
    "MARKED_STATIC",
    "DynamicDims",
    "check_kept",
    "guards_again",
    "is_number",
    "is_size_symbol",
    "is_symbolic",
    "marked",
    "no_more_guards",
    "open_dims",
    "refusal",
    "symbols_kept",
]

# By tensor leaf, its dims whose sizes may differ from call to call.
DynamicDims = Mapping[int, Set[int]]

MARKED_STATIC = "_dynamo_static_indices"
"""The attribute of a tensor that `torch._dynamo.mark_static` sets."""

_MARKS = "_dynamo_weak_dynamic_indices"
# What users say with torch._dynamo.mark_dynamic and its like.
_USERS_MARKS = (
    "_dynamo_dynamic_indices",
    "_dynamo_propagated_dynamic_indices",
    "_has_dynamo_dim_marking",
)
# With these, Dynamo would not know the sizes of the call: they are open dims like others instead.
_UNKNOWN_MARKS = ("_dynamo_unbacked_indices", "_dynamo_strict_unbacked_indices")


@contextlib.contextmanager
def marked(leaves: Sequence[torch.Tensor], dims: DynamicDims) -> Iterator[None]:
    """Mark the dims of tensors for Dynamo, and none of tensors without dims, for some time."""
    saved: list[tuple[torch.Tensor, str, Any]] = []
    marks: dict[int, set[int]] = {}
    for leaf, tensor in enumerate(leaves):
        marks.setdefault(id(tensor), set()).update(dims.get(leaf, ()))
    try:
        for tensor in {id(tensor): tensor for tensor in leaves}.values():
            mine = marks[id(tensor)]
            for name in (_MARKS, *_UNKNOWN_MARKS, *(() if mine else _USERS_MARKS)):
                if hasattr(tensor, name):
                    saved.append((tensor, name, getattr(tensor, name)))
                    delattr(tensor, name)
            if mine:
                setattr(tensor, _MARKS, mine)
        yield
    finally:
        for tensor in leaves:
            if hasattr(tensor, _MARKS):
                delattr(tensor, _MARKS)
        for tensor, name, value in saved:
            setattr(tensor, name, value)


def open_dims(tensor: torch.Tensor, dims: Set[int]) -> set[int]:
    """Return those of these dims that may be open: 0 and 1 mean more than a size does.

    Eager and the compiler treat them unlike others.
    """
    return {dim for dim in dims if tensor.shape[dim] > 1}


@contextlib.contextmanager
def no_more_guards(environment: Any) -> Iterator[None]:
    """What a program is lowered under: from now on, a decision by an open size is an error.

    PyTorch asks `_check_frozen` before each new guard; a frozen environment only logs it, and
    torch 2.11 has no `error_on_new_guards`. It asks also where it makes no guard: fake tensors
    that are views are made from its cache of them so.
    """

    def refuse(condition: Any, value: Any) -> None:
        if environment._suppress_guards_tls():
            return
        raise RuntimeError(f"a decision by an open size: {condition} is {value}")

    if environment is None:
        yield
        return
    with replaced_attribute(environment, "_check_frozen", refuse), without_log_of_failures():
        yield


@contextlib.contextmanager
def symbols_kept(environment: Any) -> Iterator[None]:
    """A decision that makes a symbol a number is an error, which is not logged.

    One that makes it another symbol is a guard alone: both stay.
    """
    replace = environment._set_replacement

    def replace_again(symbol: Any, value: Any, *message: Any) -> None:
        if symbol not in environment.replacements:  # else it is simplified
            if value.is_Symbol:
                return
            raise RuntimeError(f"a decision by an open size: {symbol} is {value}")
        replace(symbol, value, *message)

    replaced = replaced_attribute(environment, "_set_replacement", replace_again)
    with replaced, without_log_of_failures():
        yield


@contextlib.contextmanager
def guards_again(environment: Any) -> Iterator[None]:
    """Within `no_more_guards`: decisions by open sizes are guards of the environment again.

    But for those by which a symbol is another one or a number: programs may have been made with it.
    """
    if environment is None:
        yield
        return
    original = functools.partial(type(environment)._check_frozen, environment)
    with (
        replaced_attribute(environment, "_check_frozen", original),
        symbols_kept(environment),
        replaced_attribute(environment, "frozen", False),
    ):
        yield


def is_symbolic(value: Any) -> bool:
    """Whether a number, or a size or stride of a tensor, differs from call to call."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(number, torch.SymInt) for number in (*value.shape, *value.stride()))
    return is_number(value)


def is_size_symbol(symbol: Any, environment: Any) -> bool:
    """Whether a symbol is the size of a dim of a tensor that the caller has."""
    sources = environment.var_to_sources.get(symbol, ())
    return any(isinstance(source, TensorPropertySource) for source in sources)


def is_number(value: Any) -> bool:
    """Whether a value is a number that differs from call to call."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def check_kept(graph: torch.fx.Graph) -> None:
    """Raise CaptureError for results of a torch-level graph that are numbers."""
    for node in graph.output_node().all_input_nodes:
        if not isinstance(node.meta.get("example_value"), torch.Tensor):
            raise refusal("a result is a number that depends on sizes")


def refusal(what: str) -> CaptureError:
    """What a capture with open sizes raises where one with known sizes is needed."""
    return CaptureError(
        CaptureFailure.UNSUPPORTED_PROGRAM,
        what,
        hint="compile it for each shape: do not mark its dims as dynamic",
    )
