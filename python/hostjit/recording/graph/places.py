# SPDX-License-Identifier: Apache-2.0
"""Items of tensors at places that numbers tell which recorded code reads: `x[i]`, `x[:, i] = y`.

The code is given a view. In the graph the place is data: what is read is copied, and what is
written through the copy is put back, which is the same where nobody can tell a view from a copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from hostjit.capturing.functional.graph_writes import written_nodes
from hostjit.capturing.overlap import may_write
from hostjit.recording.errors import refusal_of

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = ["Place", "is_in_range", "put_places", "selected"]

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Place:
    """A view that the code has selected by a number.

    Attributes:
        view: `select.int` of a tensor, with what the number was.
        number: an int without dims, between `-size` and `size`.
        size: of the dim of the tensor.
    """

    view: Node
    number: Node
    size: int


def selected(
    tensor: object, index: object, recorder: Recorder
) -> tuple[torch.Tensor, tuple[Any, ...]] | None:
    """Return the view that the numbers in an index select, and what is left of the index.

    Returns None where that is not plain, or a number is out of range.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    if not tensor.is_cpu:  # where the number would be waited for
        return None
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    if tensor.requires_grad and torch.is_grad_enabled():
        return None  # the backward pass would know the place
    places = _places(index if isinstance(index, tuple) else (index,), tensor.dim())
    if places is None:
        return None
    numbers = [(dim, item) for dim, item in places if _is_number(item)]
    for dim, number in numbers:
        size = tensor.shape[dim]
        if not -size <= number < size:  # which is a decision of the code
            return None
    for dim, number in reversed(numbers):
        tensor = recorder.select(tensor, dim, number.tensor)
    return tensor, tuple(item for _, item in places if not _is_number(item))


def _places(items: tuple[Any, ...], dims: int) -> list[tuple[int, Any]] | None:
    """Return which dim each item of an index is about; None where that is not plain."""
    taken = [0 if item is None or item is Ellipsis else 1 for item in items]
    others = (None, Ellipsis)
    if not all(
        _is_number(item) or type(item) in (int, slice) or any(item is other for other in others)
        for item in items
    ):
        return None
    if sum(item is Ellipsis for item in items) > 1 or sum(taken) > dims:
        return None
    dim, found = 0, []
    for item, count in zip(items, taken, strict=True):
        found.append((dim, item))
        dim += dims - sum(taken) if item is Ellipsis else count
    return found


def _is_number(item: Any) -> bool:
    """Whether something stands for an int that is followed."""
    return hasattr(item, "followed_place") and not item.tensor.is_floating_point()


def put_places(recorder: Recorder, results: Iterable[Node]) -> None:
    """Have the graph of a recording pick by numbers what the code has selected by them.

    Raises CaptureError where somebody can tell that there are no views.
    """
    memory = recorder.storages
    kept = {*results}
    for place in reversed(recorder.places):
        view, most = place.view, place.size - 1
        writers = _writers(view, memory, kept)
        base, dim, _ = _operands(view)
        with view.graph.inserting_before(view):
            number = view.graph.call_function(aten.clamp.default, (place.number, ~most, most))
        where = [*[None] * dim, number]
        for writer in writers:
            with view.graph.inserting_after(writer):
                put = view.graph.call_function(aten.index_put_.default, (base, where, view))
            put.meta.update(writer.meta)
        number.meta.update(view.meta)
        view.target, view.args = aten.index.Tensor, (base, where)
        recorder.made.pop(view, None)


def _writers(view: Node, memory: dict[Node, int], kept: Set[Node]) -> Sequence[Node]:
    """Return what writes a view that is to be a copy."""
    views, writers, is_stale = {view}, [], False
    node = view.next
    while node.op != "root":
        used = not views.isdisjoint(node.all_input_nodes)
        if used and is_stale:
            raise _refusal(node)
        written: list[Node] = []
        if may_write(node):
            written = [each for each in written_nodes(node) if memory.get(each) == memory[view]]
        if used and memory.get(node, memory[view]) == memory[view]:
            views.add(node)
        if not views.isdisjoint(written):
            writers.append(node)
        elif written:
            is_stale = True
        node = node.next
    if not views.isdisjoint(kept):
        raise _refusal(view)
    return writers


def _refusal(node: Node) -> Exception:
    what = "looks at what an item by a number is a view of"
    return refusal_of(f"{node.meta.get('stack_trace', '').strip()} {what}".strip())


def is_in_range(node: Node) -> bool:
    """Tell whether a node picks at places that are known to be there, as `put_places` writes it."""
    if node.target not in (aten.index.Tensor, aten.index_put.default):
        return False
    base, where, *_ = _operands(node)
    pairs = zip(where, base.meta["val"].shape, strict=False)
    picked = [(place, size) for place, size in pairs if place is not None]
    return all(
        place.target is aten.clamp.default and place.args[1:] == (-size, size - 1)
        for place, size in picked
    )


def _operands(node: Node) -> tuple[Any, ...]:
    return node.args
