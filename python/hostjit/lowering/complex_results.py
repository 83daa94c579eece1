# SPDX-License-Identifier: Apache-2.0
"""Complex tensors that are put together from their parts, which kernels write in place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch._prims_common import corresponding_real_dtype
from torch.fx import Node

from hostjit import _C
from hostjit.kernels.sizes import Size
from hostjit.lowering.context import LoweringContext
from hostjit.lowering.copies import Box, box_of, copy
from hostjit.lowering.devices import CPU, device_of
from hostjit.lowering.grouping import PointwiseGroup, ScheduleItem
from hostjit.lowering.registry import lowers
from hostjit.lowering.sizes import shape_of, strides_of
from hostjit.lowering.types import dtype_name, is_plain

__all__ = ["Wholes"]

_COMPLEX = torch.ops.aten.complex.default


class Wholes:
    """The complex tensors both of whose parts one kernel writes: it writes them in place."""

    def __init__(self, items: Iterable[ScheduleItem]) -> None:
        self._of_parts: dict[Node, Node] = {}
        made: dict[Node, PointwiseGroup] = {}
        for item in items:
            if isinstance(item, PointwiseGroup):
                if not item.kernel.has_rows:
                    made.update(dict.fromkeys(item.outputs, item))
            elif item.target is _COMPLEX and device_of(item) == CPU and _fits(item):
                parts = item.all_input_nodes
                groups = [made[part] for part in parts if part in made]
                if len(groups) == 2 and groups[0] is groups[1]:
                    users = {*itertools.chain(*(part.users for part in parts))}
                    if users <= {item, *groups[0].members}:
                        self._of_parts.update(dict.fromkeys(parts, item))

    def pairs(self, group: PointwiseGroup) -> dict[int, int]:
        """Return which outputs of a group are the imaginary parts of which others."""
        wholes = [self._of_parts[node] for node in group.outputs if node in self._of_parts]
        places = (map(group.outputs.index, whole.all_input_nodes) for whole in wholes)
        return dict(places)  # type: ignore[arg-type]

    def placed(
        self, context: LoweringContext, group: PointwiseGroup
    ) -> dict[Node, _C.Value | None]:
        """Allocate the tensors of which a group has the parts; return the buffers of these.

        The real part has the buffer of both.
        """
        found: dict[Node, _C.Value | None] = {}
        for real, imaginary in self.pairs(group).items():
            first, second = group.outputs[real], group.outputs[imaginary]
            found[first], found[second] = _pairs(context, self._of_parts[first]), None
        return found


def _fits(node: Node) -> bool:
    """Whether the parts of a node are laid out as it is."""
    value = node.meta["val"]
    return all(
        is_plain(part) and _layout(part.meta["val"]) == _layout(value)  # type: ignore[union-attr]
        for part in node.args
    )


def _layout(tensor: torch.Tensor) -> list[str]:
    return [*map(str, (*tensor.shape, *tensor.stride()))]


def _pairs(context: LoweringContext, whole: Node) -> _C.Value:
    """Allocate a complex tensor, and return its memory as pairs of real numbers."""
    type_ = context.indices.type_of(whole.meta["val"])
    sizes, strides = _of_pairs(whole.meta["val"])
    pairs = context.indices.type(
        dtype_name(corresponding_real_dtype(whole.meta["val"].dtype)), sizes, strides, type_.device
    )
    pairs_: _C.Value = context.create(
        "view", {"source": context.allocate(whole), "offset": 0}, [pairs]
    )
    return pairs_


@lowers("aten.complex.default")
def lower_complex(context: LoweringContext, node: Node) -> bool:
    """complex(real, imag): a copy of each part, unless a kernel has written both."""
    result, parts = node.meta["val"], node.args
    if context.has(node):
        return True
    if not all(is_plain(part) and _is_of_shape(part, result) for part in parts):
        return False
    pairs, (sizes, strides) = _pairs(context, node), _of_pairs(result)
    for place, part in enumerate(parts):
        assert isinstance(part, Node)
        source, target = box_of(context.value(part), part.meta["val"]), Box(pairs, sizes, strides)
        source.sizes.append(1)
        source.strides.append(1)
        target.narrow(len(sizes) - 1, place, 1)
        copy(context, source, target)
    return True


def _of_pairs(tensor: torch.Tensor) -> tuple[list[Size], list[Size]]:
    """The sizes and strides of a complex tensor's memory as pairs of real numbers."""
    return [*shape_of(tensor), 2], [*(2 * stride for stride in strides_of(tensor)), 1]


def _is_of_shape(part: Any, result: torch.Tensor) -> bool:
    return shape_of(part.meta["val"]) == shape_of(result)
