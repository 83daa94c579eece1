# SPDX-License-Identifier: Apache-2.0
"""What is asked about a call ahead of its replay besides its arguments and what is watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hostjit.capturing.arguments import tensor_leaves
from hostjit.capturing.instances import is_a
from hostjit.recording.calls.mismatch import difference_of_gradient, tensor_name
from hostjit.recording.calls.opened_objects import Opened, expanded
from hostjit.recording.reach.entries import Entry
from hostjit.recording.replays.pruned import Pruned
from hostjit.recording.replays.read_guard import ReadGuard
from hostjit.recording.running.gradient_hooks import has_hooks

__all__ = ["ReplayChecks", "anchors_of", "assign_gradients"]

_CONTAINERS = (tuple, list, dict, torch.Tensor)


class ReplayChecks:
    """Checks of tensors among the arguments, and a condition on calls for what Python has to ask.

    Attributes:
        leaf_gradients: tensors among the arguments whose `.grad` matters, by leaf, and whether
            there was one when the call began.
        written: leaves that the replay writes.
        pruned: what runs once, if anything does.
        reads: the values that Python code has seen, if it has.
        compiled_reads: the same as `_C.Specialization` takes it, unless Python has to compare them.
        opened: classes of arguments whose fields are compared.
        settings: what else is compared at each call.
        unhooked: leaves, those of autograd's graph too, that have no hooks for backward passes.
        runs_backward: the call runs a backward pass.
        unmarked: leaves without attributes of their own, for which the code may ask.
        met_again: a call of which Python asks had all values that were read.
    """

    def __init__(
        self,
        leaf_gradients: Sequence[tuple[int, bool]] = (),
        written: Sequence[int] = (),
        pruned: Pruned | None = None,
        reads: ReadGuard | None = None,
        opened: Opened | None = None,
        settings: Sequence[Entry] = (),
        unhooked: Sequence[int] = (),
        runs_backward: bool = False,
        unmarked: Sequence[int] = (),
    ) -> None:
        self.leaf_gradients = list(leaf_gradients)
        self.written = list(written)
        self.pruned = pruned
        self.reads = reads
        self.compiled_reads = None if reads is None else reads.compiled()
        self._asked_reads = reads if self.compiled_reads is None else None
        self.opened = opened or {}
        self.settings = list(settings)
        self.unhooked = list(unhooked)
        self.runs_backward = runs_backward
        self.unmarked = list(unmarked)
        self.met_again = False

    def join(self, other: ReplayChecks) -> None:
        """Ask what another one asks, too, but for values that are read and what runs once."""
        self.leaf_gradients = [*{*self.leaf_gradients, *other.leaf_gradients}]
        self.settings += other.settings
        self.unhooked = [*{*self.unhooked, *other.unhooked}]
        self.unmarked = [*{*self.unmarked, *other.unmarked}]

    def condition(self) -> ReplayChecks | None:
        """Return what is to be asked at each call, as `_C.Specialization` takes it."""
        return self if self.settings or self._asks_of_tensors() else None

    def leaf_checks(self) -> list[tuple[str, int]]:
        """Return what the call path compares of the arguments, as `_C.Specialization` takes it."""
        gradients = [
            ("has_gradient" if has else "no_gradient", leaf) for leaf, has in self.leaf_gradients
        ]
        unhooked = [("unhooked", leaf) for leaf in self.unhooked]
        return [*unhooked, *gradients, *(("unmarked", leaf) for leaf in self.unmarked)]

    def _asks_of_tensors(self) -> bool:
        over_memory = self.pruned is not None and bool(self.written)
        return self._asked_reads is not None or over_memory

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Tell whether a call whose `leaf_checks` hold may be replayed.

        Writes nothing that others see.
        """
        for setting in self.settings:
            if setting.differs():
                return False
        if not self._asks_of_tensors():
            return True
        leaves = self._leaves_of(args, kwargs)
        if self.pruned is not None and any(map(self.pruned.shares_memory, self._written(leaves))):
            return False
        if self._asked_reads is not None and not self._asked_reads.holds(leaves):
            return False
        self.met_again = True
        return True

    def _leaves_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the tensors among the arguments, soon where no container is among these."""
        leaves: list[torch.Tensor] = []
        for value in args if not kwargs and not self.opened else (args,):
            if type(value) is torch.Tensor:
                leaves.append(value)
            elif is_a(value, _CONTAINERS):
                return tensor_leaves(*expanded(args, kwargs, self.opened))
        return leaves

    def difference(
        self, leaves: Sequence[torch.Tensor], arguments: Mapping[str, Any] | None = None
    ) -> str:
        """Say why a call with these tensors is not replayed; "" where nothing is known.

        `arguments`: those of the call by name, where that is known.
        """
        for index in self.unhooked:
            if has_hooks(leaves[index]):
                name = tensor_name(index, leaves, arguments or {})
                return f"{name} has hooks, or was computed with gradients"
        for index, has in self.leaf_gradients:
            if (leaves[index].grad is not None) != has:
                return difference_of_gradient(tensor_name(index, leaves, arguments or {}), has)
        for index in self.unmarked:
            if leaves[index].__dict__:
                return f"{tensor_name(index, leaves, arguments or {})} has attributes"
        if self.pruned is not None and any(map(self.pruned.shares_memory, self._written(leaves))):
            return "it writes to memory that is read only once"
        return self.reads.difference(leaves) if self.reads is not None else ""

    def _written(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [leaves[index] for index in self.written]

    def renewed(self, inputs: list[Any]) -> list[Any]:
        """Return the bindings, the last of which are what runs once: that is computed if needed."""
        if self.pruned is None or self.pruned.is_current():
            return inputs
        self.pruned.compute()
        values = self.pruned.values
        return [*inputs[: len(inputs) - len(values)], *values]


def anchors_of(
    leaves: Sequence[torch.Tensor], outside: Sequence[torch.Tensor]
) -> list[tuple[int, int]]:
    """Return which tensors of the arguments the call meets elsewhere, too: leaves and ids."""
    known = set(map(id, outside))
    return [(leaf, id(tensor)) for leaf, tensor in enumerate(leaves) if id(tensor) in known]


def assign_gradients(result: Any, *pairs: Any) -> Any:
    """Give tensors their gradients, owners and gradients in turn; return the result."""
    for owner, gradient in zip(pairs[::2], pairs[1::2], strict=True):
        owner.grad = gradient
    return result
