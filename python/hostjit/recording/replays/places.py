# SPDX-License-Identifier: Apache-2.0
"""Where tensors and containers of a call are: which are one, share memory, or stay in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hostjit.capturing.arguments import containers_in, tensor_leaves
from hostjit.capturing.instances import is_a
from hostjit.recording.replays.checks import anchors_of

__all__ = ["Places", "StaticInputs", "moved_off"]


class StaticInputs:
    """Tensors among the arguments that are in the same memory at each call.

    Attributes:
        leaves: which of the tensors among the arguments, and their addresses.
    """

    def __init__(
        self,
        names: Sequence[str],
        arguments: Mapping[str, Any],
        leaves: Sequence[torch.Tensor],
    ) -> None:
        """`names`: of the arguments that they are in. `arguments`: those of the call, by name."""
        self._names: list[str] = []
        self.leaves: list[tuple[int, int]] = []
        for name in names:
            for tensor in tensor_leaves((arguments[name],), {}) if name in arguments else ():
                leaf = next(i for i, found in enumerate(leaves) if found is tensor)
                self._names.append(name)
                self.leaves.append((leaf, tensor.data_ptr()))

    def difference(self, leaves: Sequence[torch.Tensor]) -> str:
        """Say which is in other memory; "" where none is."""
        for name, (leaf, address) in zip(self._names, self.leaves, strict=True):
            if leaves[leaf].data_ptr() != address:
                return f"argument '{name}' is a static input, and is in other memory"
        return ""


class Places:
    """Which tensors and containers of a call are one, and how many memories these are in."""

    def __init__(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        leaves: Sequence[torch.Tensor],
        outside: Sequence[torch.Tensor],
    ) -> None:
        """`leaves`: the tensors among the arguments. `outside`: those met elsewhere."""
        self._outside = outside
        self._sharing = _sharing(leaves, outside)
        self._equal_containers = _equal_containers(args, kwargs)
        self._anchors = anchors_of(leaves, outside)

    def has_same_anchors(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Tell whether arguments of a call are those tensors outside of them that they were."""
        return anchors_of(leaves, self._outside) == self._anchors

    def difference(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[torch.Tensor]
    ) -> str:
        """Say what differs in a call; "" where nothing does."""
        if self._sharing != _sharing(leaves, self._outside):
            return "which of its tensors are one, or share memory, is not as it was"
        if self._equal_containers != _equal_containers(args, kwargs):
            return "which of its lists and dicts are one is not as it was"
        return ""


def moved_off(
    aligned: Sequence[int | torch.Tensor], leaves: Sequence[torch.Tensor]
) -> int | torch.Tensor | None:
    """Return which of some leaves and tensors has an address that 16 does not divide."""
    for place in aligned:
        tensor = place if isinstance(place, torch.Tensor) else leaves[place]
        if tensor.data_ptr() % 16 != 0:
            return place
    return None


def _equal_containers(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[int]:
    """Return of each list and dict among the arguments where it is first."""
    found = [id(x) for x in containers_in(args, kwargs) if is_a(x, (list, dict))]
    return [found.index(container) for container in found]


def _sharing(leaves: Sequence[torch.Tensor], outside: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Return how many tensors and how many memories there are among those of a call."""
    tensors = [*leaves, *outside]
    memories = {x.untyped_storage()._cdata for x in tensors if x.layout is torch.strided}
    return len(set(map(id, tensors))), len(memories)
