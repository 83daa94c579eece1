# SPDX-License-Identifier: Apache-2.0
"""Refuses writes to memory that is in use elsewhere, which functionalisation does not see."""

from __future__ import annotations

import collections
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2
from torch.utils._pytree import tree_leaves

from hostjit.capturing.dynamic_dims import is_symbolic
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.triton_launches import is_triton_launch

__all__ = [
    "may_write",
    "overlaps_itself",
    "refuse_overlap",
    "refuse_overlapping_operands",
    "writes_clones",
]

aten = torch.ops.aten

_KNOWN_PURE = frozenset({"isnan", "isinf", "isfinite", "is_nonzero", "item", "index_select"})
_KNOWN_WRITERS = frozenset({"setitem", "batch_norm", "instance_norm", "detach_"})


def refuse_overlap(module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> None:
    """Raise CaptureError where inputs share memory and one may be written.

    Functionalisation can't see that; without a write it is fine.
    """
    if not any(may_write(node) for node in module.graph.nodes):
        return
    seen: dict[int, torch.Tensor] = {}
    for tensor in inputs:
        storage = tensor.untyped_storage()._cdata
        if storage in seen and tensor.numel():
            raise CaptureError(
                CaptureFailure.OVERLAPPING_INPUTS,
                "two inputs share memory, and the call changes tensors in place",
                hint="pass tensors that do not share memory, or clone one of them",
            )
        seen[storage] = tensor


def may_write(node: torch.fx.Node) -> bool:
    """Tell whether a node of Dynamo's graph may change a tensor; cheap, and errs to yes."""
    if node.op in ("placeholder", "output", "get_attr"):
        return False
    if "out" in node.kwargs or node.kwargs.get("inplace"):
        return True
    if writes_clones(node):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in _KNOWN_PURE:
        return False
    return name.endswith("_") or name in _KNOWN_WRITERS or name.startswith("i")


def writes_clones(node: torch.fx.Node) -> bool:
    """Tell whether a node is a custom operator that functionalisation gives clones to write."""
    target = node.target
    if isinstance(target, torch._ops.OpOverloadPacket):
        overloads = [getattr(target, name) for name in target.overloads()]
    else:
        overloads = [target] if isinstance(target, torch._ops.OpOverload) else []
    custom = (overload for overload in overloads if overload.namespace != "aten")
    is_written = any(overload._schema.is_mutable for overload in custom)
    return is_written or is_triton_launch(target) or target is auto_functionalized_v2


def refuse_overlapping_operands(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise CaptureError where an operator writes elements that it also reads or writes elsewhere.

    Eager raises for some of these, and the results of the others depend on the order in which it
    goes through the elements; functionalisation reads everything before it writes. Reading exactly
    what is written is fine where every element is computed from those at its place.
    """
    written, read = _operands(func, args, kwargs)
    groups: dict[int, list[tuple[torch.Tensor, bool]]] = collections.defaultdict(list)
    for tensor, is_written in [*((x, True) for x in written), *((x, False) for x in read)]:
        groups[tensor.untyped_storage()._cdata].append((tensor, is_written))
    elementwise = torch.Tag.pointwise in func.tags or func is aten.copy_.default
    for group in groups.values():
        for index, (tensor, is_written) in enumerate(group):
            if not is_written:
                break
            others = group[index + 1 :]
            if overlaps_itself(tensor) or any(
                _overlaps(tensor, other, elementwise and not also_written)
                for other, also_written in others
            ):
                raise CaptureError(
                    CaptureFailure.UNSUPPORTED_PROGRAM,
                    f"{func} writes to memory that it uses more than once",
                    hint="write to a clone, or clone what is read",
                )


def _operands(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the tensors that a call writes, and the others."""
    written: list[torch.Tensor] = []
    read: list[torch.Tensor] = []
    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        writes = argument.alias_info is not None and argument.alias_info.is_write
        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        (written if writes else read).extend(tensors)
    return written, read


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Tell whether two places of a tensor may be one element of its memory."""
    sizes = zip(tensor.stride(), tensor.shape, strict=True)
    if is_symbolic(tensor):
        return 0 in tensor.stride()
    if tensor.numel() == 0:
        return False
    end = 0
    for stride, size in sorted(sizes):
        if size > 1:
            if stride <= end:
                return True
            end += stride * (size - 1)
    return False


def _geometry(tensor: torch.Tensor) -> list[str]:
    """Where the elements of a tensor lie, as text: comparing symbols would assume something."""
    return [str(x) for x in (*tensor.shape, *tensor.stride(), tensor.storage_offset())]


def _overlaps(written: torch.Tensor, other: torch.Tensor, same_is_fine: bool) -> bool:
    """Tell whether two views of one memory may have an element in common."""
    if is_symbolic(written) or is_symbolic(other):
        return not (same_is_fine and _geometry(other) == _geometry(written))
    if written.numel() == 0 or other.numel() == 0:
        return False
    distance = int(other.storage_offset() - written.storage_offset())
    if distance == 0 and _dims(written) == _dims(other):
        return not same_is_fine
    strides = sorted({stride for x in (written, other) for stride, _ in _dims(x)}, reverse=True)
    return _meet(distance, strides, _steps(written, strides), _steps(other, strides))


def _meet(distance: int, strides: list[int], steps: list[int], others: list[int]) -> bool:
    """Tell whether `distance` may be a step of the one view less a step of the other.

    Each goes up to so many times along each of the strides, the largest first.
    """
    if not strides:
        return distance == 0
    largest, *rest = strides
    if any(sum(map(operator.mul, rest, n[1:])) >= largest for n in (steps, others)):
        return True  # rows that reach into each other: not worth knowing better
    count = distance // largest
    return any(
        -others[0] <= n <= steps[0] and _meet(distance - n * largest, rest, steps[1:], others[1:])
        for n in (count, count + 1)
    )


def _steps(tensor: torch.Tensor, strides: list[int]) -> list[int]:
    """Return how many steps a tensor goes along each stride."""
    return [sum(size - 1 for own, size in _dims(tensor) if own == stride) for stride in strides]


def _dims(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Return stride and size of the dimensions that reach further elements."""
    return [
        (stride, size)
        for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
        if size > 1 and stride
    ]
