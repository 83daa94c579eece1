# SPDX-License-Identifier: Apache-2.0
"""Numbers among the arguments of a pass of a loop, of which one recording is for any values.

A counter, a step size, what the last pass has read: the next pass is given another. Those that the
code only computes with and compares are inputs of the program, as a `ReadNumber` is.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch

from hostjit.capturing.numbers.open_numbers import MOST_NUMBERS, number_leaves
from hostjit.recording.graph.inputs import OpenArgument
from hostjit.recording.graph.kept_numbers import keeps
from hostjit.recording.graph.read_numbers import LARGEST_SMALL_INT, ReadNumber
from hostjit.recording.graph.recorder import Recorder

__all__ = ["OpenArguments", "may_be_any"]


class OpenArguments:
    """Which arguments of a function may be any numbers, and are."""

    def __init__(
        self,
        body: types.FunctionType,
        taken: Sequence[str],
        *,
        counts: bool,
        receiver: Any = None,
    ) -> None:
        """Find them.

        Args:
            body: the function.
            taken: names of its parameters, without that of the object of a method.
            counts: two numbers follow, as of `PassVariables`.
            receiver: that object.
        """
        self._body = body
        self._names = taken
        self._receiver = receiver
        self._counts = frozenset({len(taken), len(taken) + 1} if counts else ())

    @property
    def indices(self) -> frozenset[int]:
        """Those of the arguments that may, by what the names in the code stand for now."""
        body, receiver = self._body, self._receiver
        names = enumerate(self._names)
        return self._counts | {i for i, name in names if _is_kept(body, name, receiver)}

    def names(self, args: Sequence[Any]) -> frozenset[str]:
        """Return what `number_leaves` calls those of a call."""
        return frozenset(
            f"L['args'][{index}]"
            for index in self.indices
            if index < len(args) and may_be_any(args[index])
        )

    def opened(self, args: Sequence[Any], recorder: Recorder) -> list[Any]:
        """Return the arguments of a call that is recorded, with numbers that may be any."""
        made = [*args]
        positions = _positions(args)
        for index in sorted(self.indices)[-MOST_NUMBERS:]:
            value: Any = args[index] if index < len(args) else None
            if not may_be_any(value):
                continue
            kind: Any = type(value)
            tensor = torch.tensor(value, dtype=torch.int64 if kind is int else torch.float64)
            slot, position = len(recorder.opened), positions[index]
            recorder.add_open(OpenArgument(tensor, slot, kind, index, position))
            if index < len(self._names):
                made[index] = ReadNumber(tensor, recorder, is_small=kind is int)
        return made


def _positions(args: Sequence[Any]) -> list[int]:
    """Where each argument is among the numbers of the call."""
    counts = [len(number_leaves((value,), {})) for value in args]
    return [sum(counts[:index]) for index in range(len(args))]


def may_be_any(value: Any) -> bool:
    """Tell whether a value is a number in place of which there may be any other of its type."""
    if type(value) is int:
        return -LARGEST_SMALL_INT <= value <= LARGEST_SMALL_INT
    return type(value) is float and abs(value) < float("inf")


def _is_kept(body: types.FunctionType, name: str, receiver: Any) -> bool:
    """Whether the code keeps a number that it is given to itself, or returns it."""
    return keeps(body.__code__, body.__globals__, receiver, name, may_return=True)
