# SPDX-License-Identifier: Apache-2.0
"""Refuses writes to memory that is in use elsewhere, which functionalisation does not see."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2
from torch.utils._pytree import tree_leaves

from hostjit import _C
from hostjit.capturing.dynamic_dims import is_symbolic
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.functional.triton_launches import is_triton_launch

__all__ = [
    "counts_from_storage",
    "inputs_counted_from",
    "may_overlap",
    "may_write",
    "overlaps",
    "overlaps_itself",
    "refuse_overlap",
    "refuse_overlapping_operands",
    "writes_clones",
]

aten = torch.ops.aten

# Of the module `operator`, whose `and_` is no `logical_and_`.
_KNOWN_PURE = frozenset({"and_", "or_", "not_", "is_"})
_KNOWN_WRITERS = frozenset(
    {
        *("setitem", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul"),
        *("ior", "ipow", "irshift", "isub", "itruediv", "ixor"),
        *("batch_norm", "instance_norm", "invoke_subgraph"),
    }
)


def refuse_overlap(inputs: Sequence[Any], mutated: Collection[int]) -> None:
    """Raise CaptureError where an input that is written may have elements of another, or twice.

    Functionalisation can't see that; without a write it is fine.
    """
    for index in mutated:
        if isinstance(inputs[index], torch.Tensor) and overlaps_itself(inputs[index]):
            raise CaptureError(
                CaptureFailure.OVERLAPPING_INPUTS,
                "elements of an input that the call changes share memory",
                hint="pass a tensor of which each element has memory of its own",
            )
    sharing: dict[int, list[int]] = collections.defaultdict(list)
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            sharing[value.untyped_storage()._cdata].append(index)
    for group in sharing.values():
        for first, second in itertools.combinations(group, 2):
            is_written = first in mutated or second in mutated
            if is_written and may_overlap(inputs[first], inputs[second]):
                raise CaptureError(
                    CaptureFailure.OVERLAPPING_INPUTS,
                    "two inputs share memory that the call changes",
                    hint="pass tensors that do not share memory, or clone one of them",
                )


def counts_from_storage() -> CaptureError:
    """Return the error for views that count from where the memory of an input begins."""
    return CaptureError(
        CaptureFailure.UNSUPPORTED_PROGRAM,
        "as_strided of an input counts from where its memory begins",
        hint="leave its storage_offset out",
    )


def inputs_counted_from(
    views: Iterable[Sequence[Any]], inputs: Sequence[Any], *, is_written: bool
) -> list[int]:
    """Return the positions of inputs in whose storage a view says where it begins.

    What was traced is right for them where their first element is that of their storage.

    Args:
        views: the arguments of each `as_strided`.
        inputs: functional tensors.
        is_written: the call changes some. Functionalisation knows the elements of an input, not
            those beside it in its storage.

    Raises CaptureError where a view may reach memory around an input.
    """
    around = {
        x.untyped_storage()._cdata: position
        for position, x in enumerate(inputs)
        if isinstance(x, torch.Tensor)
    }
    found: set[int] = set()
    for operand, sizes, strides, *offset in views:
        position = around.get(operand.untyped_storage()._cdata)
        if position is None:
            continue
        whole = inputs[position]
        is_same_type = operand.dtype == whole.dtype
        if not is_written and is_same_type and whole.storage_offset() != 0:
            continue  # PyTorch is called for the view, wherever the input begins
        is_counted = bool(offset) and offset[0] is not None
        begin = offset[0] if is_counted else operand.storage_offset()
        if is_counted:
            found.add(position)
        is_known = _is_inside if is_written else _is_within
        is_shifted = is_counted and whole.storage_offset() != 0
        if is_shifted or not is_known(operand, whole, sizes, strides, begin):
            changes = ", and the call changes inputs" * is_written
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                f"as_strided may reach memory around an input{changes}",
                hint="pass the tensor that has this memory",
            )
    return sorted(found)


def _is_within(operand: Any, whole: Any, sizes: Any, strides: Any, begin: Any) -> bool:
    """Tell whether a view has bytes of `whole` only."""
    if any(size == 0 for size in sizes):
        return True
    if any(size == 0 for size in whole.shape):
        return False
    last = begin + _reach(sizes, strides)
    end = whole.storage_offset() + _reach(whole.shape, whole.stride())
    first = whole.storage_offset() * whole.itemsize
    return bool(begin * operand.itemsize >= first) and bool(
        (last + 1) * operand.itemsize <= (end + 1) * whole.itemsize
    )


def _reach(sizes: Any, strides: Any) -> Any:
    return sum(stride * (size - 1) for size, stride in zip(sizes, strides, strict=True))


def _is_inside(operand: Any, whole: Any, sizes: Any, strides: Any, begin: Any) -> bool:
    """Tell whether a view has elements of `whole` only, which lie at equal distances."""
    if operand.itemsize != whole.itemsize:
        return False
    numbers = (*sizes, *strides, begin)
    if is_symbolic(whole) or any(isinstance(number, torch.SymInt) for number in numbers):
        return False
    distance = _distance(whole)
    if 0 in sizes or distance is None:
        return 0 in sizes
    dims = [dim for dim in zip(sizes, strides, strict=True) if dim[0] > 1]
    first = begin - whole.storage_offset()
    last = first + sum(stride * (size - 1) for size, stride in dims)
    is_between = first >= 0 and last < whole.numel() * distance
    return is_between and not any(n % distance for n in (first, *(stride for _, stride in dims)))


def _distance(tensor: torch.Tensor) -> int | None:
    """The distance from each element of a tensor to the next in memory, None where they differ."""
    strides = zip(tensor.stride(), tensor.shape, strict=True)
    dims = sorted((stride, size) for stride, size in strides if size > 1)
    expected = distance = dims[0][0] if dims else 1
    for stride, size in dims:
        if stride != expected:
            return None
        expected *= size
    return distance or None


def may_overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Tell whether two tensors of known sizes may have an element in common."""
    if first.untyped_storage()._cdata != second.untyped_storage()._cdata:
        return False
    return _C.may_overlap(_place(first), _place(second))


def _place(tensor: torch.Tensor) -> tuple[Sequence[int], Sequence[int], int, int]:
    return tensor.shape, tensor.stride(), int(tensor.storage_offset()), tensor.itemsize


def may_write(node: torch.fx.Node) -> bool:
    """Tell whether a node of Dynamo's graph may change a tensor; cheap, and errs to yes."""
    if node.op in ("placeholder", "output", "get_attr"):
        return False
    if "out" in node.kwargs or node.kwargs.get("inplace"):
        return True
    if writes_clones(node):
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in _KNOWN_PURE:
        return False
    return name.endswith("_") or name in _KNOWN_WRITERS


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
        if tensor.layout is not torch.strided:
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                f"{func} meets a sparse tensor, such as a gradient of nn.Embedding(sparse=True)",
            )
        groups[tensor.untyped_storage()._cdata].append((tensor, is_written))
    elementwise = torch.Tag.pointwise in func.tags or func is aten.copy_.default
    for group in groups.values():
        for index, (tensor, is_written) in enumerate(group):
            if not is_written:
                break
            others = group[index + 1 :]
            if overlaps_itself(tensor) or any(
                overlaps(tensor, other, elementwise and not also_written)
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


def overlaps(written: torch.Tensor, other: torch.Tensor, same_is_fine: bool) -> bool:
    """Tell whether two tensors may have an element in common, or at other places than the same."""
    if written.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return False
    if is_symbolic(written) or is_symbolic(other):
        return not (same_is_fine and _geometry(other) == _geometry(written))
    if same_is_fine and written.storage_offset() == other.storage_offset():
        if _dims(written) == _dims(other):
            return False
    return may_overlap(written, other)


def _dims(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Return stride and size of the dimensions that reach further elements."""
    return [
        (stride, size)
        for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
        if size > 1 and stride
    ]
