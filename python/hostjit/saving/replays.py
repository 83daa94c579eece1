# SPDX-License-Identifier: Apache-2.0
"""What calls are checked for besides arguments and modes: gradients, values that were read, memory.

Recordings have such checks; steps of optimizers are about tensors that have a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hostjit.capturing.arguments import tensor_leaves
from hostjit.capturing.guards.watches import MISSING
from hostjit.recording.calls.opened_objects import Opened, expanded
from hostjit.recording.replays.checks import ReplayChecks, anchors_of
from hostjit.recording.replays.pruned import Pruned
from hostjit.recording.replays.read_guard import ReadGuard
from hostjit.recording.running.gradient_hooks import backward_is_plain, has_hooks
from hostjit.saving.bindings import Parts, Writers, binding_from_json, binding_to_json

__all__ = ["LoadedReplay", "checks_from_json", "checks_to_json"]


def checks_to_json(checks: ReplayChecks, writers: Writers) -> dict[str, Any]:
    """Write the checks of a recording; raises hostjit.Error for programs that can't be written."""
    pruned, reads = checks.pruned, checks.reads
    return {
        "leaf_gradients": checks.leaf_gradients,
        "unhooked": checks.unhooked,
        "runs_backward": checks.runs_backward,
        "unmarked": checks.unmarked,
        "written": checks.written,
        "pruned": pruned
        and {
            "program": writers.programs.add(pruned.program),
            "sources": [writers.tensors.add(source) for source in pruned.sources],
            "operators": pruned.operators,
            "values": [writers.tensors.add(value) for value in pruned.values],
            "is_current": pruned.is_current(),
        },
        "reads": reads
        and {
            "program": writers.programs.add(reads.program),
            "inputs": [binding_to_json(binding, None, writers) for binding in reads.inputs],
            "expected": [writers.tensors.add(values) for values in reads.expected],
            "where": reads.where,
            "is_random": reads.is_random,
            "runtime": reads.runtime,
        },
    }


def checks_from_json(
    described: dict[str, Any], parts: Parts, opened: Opened | None = None
) -> ReplayChecks:
    """Return the checks of a recording. What runs once of given tensors is not computed yet.

    `opened`: the classes of arguments whose fields are compared.
    """
    pruned: Pruned | None = None
    if described["pruned"] is not None:
        once = described["pruned"]
        sources = [parts.tensors[number] for number in once["sources"]]
        program = parts.programs[once["program"]]
        program.check(sources)
        values = [parts.tensors[number] for number in once["values"]]
        is_known = once["is_current"] and parts.given.isdisjoint(once["sources"])
        pruned = Pruned(program, sources, once["operators"], values if is_known else None)
    reads: ReadGuard | None = None
    if described["reads"] is not None:
        read = described["reads"]
        reads = ReadGuard(
            parts.programs[read["program"]],
            [binding_from_json(binding, parts) for binding in read["inputs"]],
            [parts.tensors[number] for number in read["expected"]],
            [str(where) for where in read["where"]],
            is_random=bool(read["is_random"]),
            runtime=read["runtime"],
        )
    gradients = [(int(leaf), bool(has)) for leaf, has in described["leaf_gradients"]]
    written, unhooked, unmarked = (
        list(map(int, described[name])) for name in ("written", "unhooked", "unmarked")
    )
    return ReplayChecks(
        gradients,
        written,
        pruned,
        reads,
        opened=opened,
        unhooked=unhooked,
        runs_backward=bool(described["runs_backward"]),
        unmarked=unmarked,
    )


class LoadedReplay:
    """Watches what a loaded program assumes, and looks again where something differs.

    Args:
        checks: what else is asked about a call.
        gradients: tensors whose `.grad` matters, their names, and whether there has to be one.
        bindings: as `_C.Specialization` takes them.
        numbers: the same.
        outside: the same.
        leaves: the tensors of the example call.
        optimizers: given ones that the program steps.
        tensors: those that the program holds, of which none has hooks where it is a backward pass.
    """

    def __init__(
        self,
        checks: ReplayChecks,
        gradients: Sequence[tuple[torch.Tensor, str, bool]],
        bindings: Sequence[Any],
        numbers: Sequence[Any],
        outside: Sequence[torch.Tensor] | None,
        leaves: Sequence[torch.Tensor],
        optimizers: Sequence[Any],
        tensors: Sequence[torch.Tensor] = (),
    ) -> None:
        self.checks = checks
        self._gradients = gradients
        self._bindings = list(bindings)
        self._numbers = numbers
        self._outside = outside
        self._anchors = anchors_of(leaves, outside or ())
        self._optimizers = optimizers
        self._unhooked = [x for x in tensors if x.requires_grad and checks.runs_backward]

    def _leaves_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        return tensor_leaves(*expanded(args, kwargs, self.checks.opened))

    def is_current(self) -> bool:
        """Tell whether it is what was loaded: optimizers may have changed, and hooks."""
        if not all(optimizer.is_current() for optimizer in self._optimizers):
            return False
        return not self._is_hooked()

    def _is_hooked(self) -> bool:
        """Tell whether a backward pass would run something that the recorded one has not run."""
        if not self.checks.runs_backward:
            return False
        return any(map(has_hooks, self._unhooked)) or not backward_is_plain()

    def watches(self) -> list[tuple[Any, ...]]:
        """Return what the call path compares."""
        watches: list[tuple[Any, ...]] = [
            ("has_gradient" if has else "no_gradient", tensor) for tensor, _, has in self._gradients
        ]
        if self.checks.pruned is not None:
            watches += self.checks.pruned.watches()
        for optimizer in self._optimizers:
            watches += optimizer.watches()
        if self.checks.runs_backward:
            watches += [("hooks", tensor) for tensor in self._unhooked]
            watches += [("plain_leaf", tensor) for tensor in self._unhooked]
            watches.append(("plain_backward",))
        if self._is_hooked():  # looked at again at each call, until it is not
            watches.append(("dict_items", vars(self), self, ("never",), (True,), MISSING))
        return watches

    def revalidate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Look again, as `_C.Specialization` asks for it."""
        leaves = self._leaves_of(args, kwargs)
        if not self.is_current() or anchors_of(leaves, self._outside or ()) != self._anchors:
            return None
        if any((tensor.grad is not None) != has for tensor, _, has in self._gradients):
            return None
        self._bindings = self.checks.renewed(self._bindings)
        return self.watches(), self._bindings, self._numbers, self._outside, ([], []), [], None

    def difference(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Say why a call with such arguments is not answered; "" where that is not known."""
        for tensor, name, has in self._gradients:
            if (tensor.grad is not None) != has:
                return f"'{name}' has {'no gradient' if has else 'a gradient'}"
        if self._is_hooked():
            return "a tensor has hooks that a backward pass runs, or a mode of these is on"
        if not self.is_current():
            return "the optimizer, its parameters or what was constant of it changed"
        try:
            return self.checks.difference(self._leaves_of(args, kwargs))
        except (RuntimeError, ValueError):  # what is read can't be computed
            return ""
