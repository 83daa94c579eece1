# SPDX-License-Identifier: Apache-2.0
"""What is asked of a call before anything is compiled for it."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from hostjit.capturing.arguments import items_of, tensor_leaves
from hostjit.capturing.by_fields import NONE_BY_FIELDS, ByFields
from hostjit.capturing.module_fields import MOST_LEVELS
from hostjit.capturing.tensors import looking_at_tensors

__all__ = [
    "arguments_fit",
    "has_nested_tensor",
    "holds_itself",
    "in_foreign_transform",
    "makes_generators",
    "memory_is_shared",
    "memory_pattern",
    "tensors_share_memory",
]


def arguments_fit(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """False when the call itself is wrong: eager then raises the TypeError."""
    function = target.forward if isinstance(target, torch.nn.Module) else target
    try:
        # Of what is called, not of what that wraps, which may be given something else.
        inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # builtins without a signature
        return True
    return True


def holds_itself(
    args: tuple[Any, ...], kwargs: dict[str, Any], by_fields: ByFields = NONE_BY_FIELDS
) -> bool:
    """Tell whether a container among the arguments of a call is in itself, or nested too deep.

    `by_fields`: classes whose objects are containers, besides lists and dicts.
    """

    def visit(value: Any, around: tuple[int, ...]) -> bool:
        items = items_of(value, by_fields)
        if items is None:
            return False
        inside = (*around, id(value))
        if id(value) in around or len(inside) > MOST_LEVELS:
            return True
        return any(visit(item, inside) for item in items.values())

    return visit(args, ()) or visit(kwargs, ())


def makes_generators(target: Any) -> bool:
    """Tell whether a call makes but a generator or a coroutine, which compute when asked."""
    function = target.forward if isinstance(target, torch.nn.Module) else target
    if not inspect.isroutine(function) and not isinstance(function, functools.partial):
        function = type(function).__call__
    kinds = (
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
        inspect.iscoroutinefunction,
    )
    return any(is_kind(function) for is_kind in kinds)


@looking_at_tensors
def has_nested_tensor(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a call is given one that is not of PyTorch's own subclass."""
    leaves = tensor_leaves(args, kwargs)
    return any(leaf.is_nested and leaf.layout is torch.strided for leaf in leaves)


@looking_at_tensors
def memory_pattern(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which tensors of a call share elements, and what they look like."""
    from hostjit.capturing.overlap import may_overlap

    def first_shared(index: int) -> int:
        return next(
            i for i in range(index + 1) if may_overlap(leaves[i], leaves[index]) or i == index
        )

    leaves = tensor_leaves(args, kwargs)
    return tuple(
        (leaf.dtype, tuple(leaf.shape), leaf.stride(), first_shared(index))
        for index, leaf in enumerate(leaves)
    )


def in_foreign_transform() -> bool:
    """True while someone else interprets the call.

    That is Dynamo, a tracer, functorch, forward-mode differentiation or a dispatch mode.
    """
    return (
        torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()
        or torch._C._functorch.maybe_current_level() is not None
        or torch._C._len_torch_dispatch_stack() > 0
    )


@looking_at_tensors
def memory_is_shared(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether two arguments may have an element in common."""
    from hostjit.capturing.overlap import may_overlap

    pairs = itertools.combinations(tensor_leaves(args, kwargs), 2)
    return any(may_overlap(first, second) for first, second in pairs)


@looking_at_tensors
def tensors_share_memory(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tell whether two different tensors among arguments have one storage."""
    leaves = {id(tensor): tensor for tensor in tensor_leaves(args, kwargs)}
    strided = (tensor for tensor in leaves.values() if tensor.layout is torch.strided)
    memory = [tensor.untyped_storage()._cdata for tensor in strided]
    return len(memory) > len(set(memory))
