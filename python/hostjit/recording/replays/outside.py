# SPDX-License-Identifier: Apache-2.0
"""The tensors that a recorded call met besides its arguments, and what they have to be again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hostjit.capturing.program import BoundTensor, InputBinding
from hostjit.capturing.tensors import TensorFacts
from hostjit.recording.calls.mismatch import difference_of_facts, difference_of_gradient
from hostjit.recording.graph.inputs import Bound, Gradient
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.reach.state import State

__all__ = ["TensorsOutside", "touched_gradients"]


class TensorsOutside:
    """What they were when the call began, some of them by what is in the program.

    Attributes:
        all: those that arguments may be as well.
    """

    def __init__(
        self,
        recorder: Recorder,
        state: State,
        inputs: Sequence[InputBinding],
        leaves: Sequence[torch.Tensor],
    ) -> None:
        """`inputs`: those of the program. `leaves`: the tensors among the arguments."""
        self._state = state
        self._used = [
            (binding.tensor, binding.facts)
            for binding in inputs
            if type(binding) is BoundTensor and not binding.is_constant
        ]
        used = {id(tensor) for tensor, _ in self._used}
        others = [x for key, (x, _) in state.tensors.items() if key not in used]
        others = [x for x in others if x.layout is torch.strided]
        self._read = [(s.owner, s.tensor) for s in recorder.sources if isinstance(s, Gradient)]
        gradients = {id(gradient) for _, gradient in self._read}
        self._met = [(x, TensorFacts.of(x)) for x in others if id(x) not in gradients]
        bound = [s.tensor for s in recorder.sources if isinstance(s, Bound)]
        self.all = list({id(x): x for x in (*bound, *others, *state.shared)}.values())
        among_arguments = set(map(id, leaves))
        touched = touched_gradients(recorder, state)
        self._gradients = [(x, has) for x, has in touched if id(x) not in among_arguments]
        self._gradient_facts = [(owner, TensorFacts.of(gradient)) for owner, gradient in self._read]

    def join(self, other: TensorsOutside) -> None:
        """Know what another call met, too."""
        self.all = list({id(x): x for x in (*self.all, *other.all)}.values())

    def name(self, tensor: torch.Tensor) -> str:
        """Return where a tensor was found."""
        return f"'{self._state.tensors[id(tensor)][1]}'"

    def are_current(self) -> bool:
        """Tell whether they are what they were. Not whether there are gradients."""
        return all(TensorFacts.of(x) == facts for x, facts in (*self._used, *self._met))

    def have_gradients(self) -> bool:
        """Tell whether there are gradients like those where there were some, and none elsewhere."""
        if any((owner.grad is not None) != has for owner, has in self._gradients):
            return False
        return all(
            owner.grad is not None and TensorFacts.of(owner.grad) == facts
            for owner, facts in self._gradient_facts
        )

    def difference(self) -> str:
        """Say what differs; "" where nothing does."""
        for tensor, facts in (*self._used, *self._met):
            text = difference_of_facts(self.name(tensor), facts, TensorFacts.of(tensor))
            if text:
                return text
        for owner, has in self._gradients:
            if (owner.grad is not None) != has:
                return difference_of_gradient(self.name(owner), has)
        for owner, facts in self._gradient_facts:
            if owner.grad is not None:
                name = f"the gradient of {self.name(owner)}"
                text = difference_of_facts(name, facts, TensorFacts.of(owner.grad))
                if text:
                    return text
        return ""

    def watches(self) -> list[tuple[Any, ...]]:
        """Return what the call path compares."""
        watches: list[tuple[Any, ...]] = [("tensor", tensor) for tensor, _ in self._met]
        for owner, has_gradient in self._gradients:
            watches.append(("has_gradient" if has_gradient else "no_gradient", owner))
        return watches

    @contextlib.contextmanager
    def with_earlier_gradients(self) -> Iterator[None]:
        """Give tensors the gradients that they had when the call began, which is over.

        The gradients are not kept alive afterwards.
        """
        read, self._read = self._read, []
        now = [(owner, owner.grad) for owner, _ in read]
        try:
            for owner, gradient in read:
                owner.grad = gradient
            yield
        finally:
            for owner, after in now:
                owner.grad = after


def touched_gradients(recorder: Recorder, state: State) -> list[tuple[torch.Tensor, bool]]:
    """Return the tensors whose `.grad` a call reads or assigns, and whether there was one first."""
    inputs = {id(s.owner) for s in recorder.sources if isinstance(s, Gradient)}
    return [
        (owner, before is not None)
        for owner, before in state.gradients.values()
        if owner.grad is not before or id(owner) in inputs or id(owner) in recorder.asked
    ]
