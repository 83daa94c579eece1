# SPDX-License-Identifier: Apache-2.0
"""What the passes of a loop hand on to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hostjit.bytecode.loops import PassVariables
from hostjit.capturing.arguments import tensor_leaves
from hostjit.capturing.constants import same_constant
from hostjit.capturing.instances import is_one_of
from hostjit.capturing.open_sizes import is_dense
from hostjit.capturing.results.outputs import (
    ArgumentOutput,
    ConstantOutput,
    DictOutput,
    ItemOutput,
    ListOutput,
    Output,
    TupleOutput,
)
from hostjit.recording.graph.inputs import OpenArgument
from hostjit.recording.graph.recorder import Recorder

__all__ = ["CannotCarryError", "OtherKindError", "carried", "changed_leaves", "fits"]


class CannotCarryError(Exception):
    """A pass changes a variable to something that the same program can't take in the next pass."""


class OtherKindError(CannotCarryError):
    """A variable becomes something of another kind: the next pass is given that, and may repeat."""


def carried(
    variables: PassVariables, recorder: Recorder, args: Sequence[Any], output: Output
) -> list[tuple[torch.Tensor, Output]]:
    """Pair the tensors that a pass is given with what they are in the next pass.

    Args:
        variables: of the loop.
        recorder: of a pass.
        args: what that is given; numbers that may be any are tensors.
        output: what a pass returns that another follows.

    Raises CannotCarryError.
    """
    given = _given(output, variables)
    now = [*args]
    for number in recorder.opened:
        if number.argument is None:
            raise CannotCarryError
        now[number.argument] = number
    taken = dict(zip(variables.taken, now, strict=not variables.counts))
    both = [name for name in variables.taken if name in given and name != variables.item]
    pairs = [pair for name in both for pair in _pairs(taken[name], given[name])]
    _check_same(tensor_leaves(now, {}), pairs)
    return pairs


def changed_leaves(recorder: Recorder, pairs: Sequence[tuple[torch.Tensor, Output]]) -> set[int]:
    """Return which tensors among the arguments of a pass are others in the next."""
    leaves = [(recorder.leaf_of(tensor), after) for tensor, after in pairs]
    return {leaf for leaf, after in leaves if leaf is not None and after != ArgumentOutput(leaf)}


def _given(output: Output, variables: PassVariables) -> dict[str, Output]:
    """What a pass that another follows leaves in variables."""
    assert isinstance(output, TupleOutput)
    items = output.items[1:] if variables.tells_where else output.items
    return dict(zip(variables.given, items, strict=not variables.counts))


def _check_same(
    leaves: Sequence[torch.Tensor], pairs: Sequence[tuple[torch.Tensor, Output]]
) -> None:
    """Refuse a tensor that is several of the arguments, and does not become one in all of them."""
    for index, tensor in enumerate(leaves):
        count = sum(other is tensor for other in leaves)
        after = [output for other, output in pairs if other is tensor]
        is_changed = any(output != ArgumentOutput(index) for output in after)
        if count > 1 and is_changed and (len(after) < count or len({*map(repr, after)}) > 1):
            raise OtherKindError  # they are two for the next pass


def _pairs(value: Any, after: Output) -> Iterator[tuple[torch.Tensor, Output]]:
    """Raises CannotCarryError where what comes next is of another structure."""
    if isinstance(value, OpenArgument):
        if isinstance(after, ConstantOutput) and type(after.value) is value.type:
            yield value.tensor, after  # as of `misses = 0`
        elif isinstance(after, ItemOutput):
            yield value.tensor, after.items[0]
        else:
            raise OtherKindError
        return
    if is_one_of(type(value), (torch.Tensor, torch.nn.Parameter)):
        yield value, after
        return
    if is_one_of(type(value), (int, float, type(None))) and not isinstance(after, ConstantOutput):
        raise OtherKindError  # as of `best = float("inf")`, which is not open
    if isinstance(after, ConstantOutput):
        if value is after.value or same_constant(value, after.value):
            return
    elif _is_alike(value, after):
        items = value.values() if isinstance(after, DictOutput) else value
        for item, behind in zip(items, after.items, strict=True):  # type: ignore[union-attr]
            yield from _pairs(item, behind)
        return
    raise CannotCarryError


def _is_alike(value: Any, after: Output) -> bool:
    match after:
        case TupleOutput(items):
            return type(value) is tuple and len(value) == len(items)
        case ListOutput(items):
            return type(value) is list and len(value) == len(items)
        case DictOutput(kind, keys, _):
            known: Any = value
            return type(value) is kind and (*known,) == keys
    return False


def fits(tensor: torch.Tensor, made: torch.Tensor) -> bool:
    """Tell whether the program may be given what was made in the place of a tensor."""
    return (
        type(tensor) is torch.Tensor
        and tensor.is_inference() == torch.is_inference_mode_enabled()
        and tensor.dtype == made.dtype
        and tensor.shape == made.shape
        and tensor.stride() == made.stride()
        and is_dense(made.shape, made.stride())
    )
