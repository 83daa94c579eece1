# SPDX-License-Identifier: Apache-2.0
"""Numbers that calls return or store, as `_C.Specialization` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hostjit.capturing.dynamo.stores import Store
from hostjit.capturing.numbers.open_numbers import Made, NumberPlace
from hostjit.capturing.numbers.results import NumberResults
from hostjit.capturing.numbers.steps import Computed, Given, Operand, SizeOf, TensorLeaf
from hostjit.capturing.program import ArgumentLeaf, CapturedProgram, NumberInput

__all__ = ["FlatNumbers", "NumberValues"]


class NumberValues:
    """The values that a call makes besides its tensors: sources, then steps.

    Attributes:
        described: the description of them.
    """

    def __init__(
        self,
        results: NumberResults,
        stores: Sequence[tuple[NumberPlace, Store]] = (),
        slots: Mapping[int, int] | None = None,
        leaves: Mapping[int, int] | None = None,
    ) -> None:
        """Collect them.

        Args:
            results: what they are.
            stores: which of them are stored where, and what else is.
            slots: of the open numbers, where these are others than of the call.
            leaves: the same for the tensor leaves.
        """
        self._results = results
        self._slots = slots
        self._leaves = leaves
        self._sources: dict[Any, int] = {}
        self._described: list[tuple[str, Any]] = []
        operands = [operand for _, used in results.steps for operand in used]
        operands += [result for result in results.results if result is not None]
        operands += results.more
        for operand in operands:
            self._add(operand)
        constants = [store.value for _, store in stores if store.result is None]
        self._constants = [self._add_object(value) for value in constants]
        steps = [
            (function, [self.position(operand) for operand in used])
            for function, used in results.steps
        ]
        self.described: tuple[Any, ...] = (self._described, steps) if self._described else ()

    def takes(self, value: object) -> bool:
        """Tell whether a function of Python is given this very object."""
        return any(kind == "object" and found is value for kind, found in self._described)

    def number(self, result: int) -> int:
        """Return the position of the value that is a result of Dynamo's graph."""
        operand = self._results.results[result]
        assert operand is not None
        return self.position(operand)

    def step(self, step: int) -> int:
        """Return the position of the value that a step computes."""
        return len(self._described) + step

    def stores(self, stores: Sequence[tuple[NumberPlace, Store]]) -> list[tuple[Any, Any, int]]:
        """Return the description of what is stored, by where that is now."""
        constants = iter(self._constants)
        return [
            (
                place.holder,
                place.key,
                next(constants) if store.result is None else self.number(store.result),
            )
            for place, store in stores
        ]

    def _add(self, operand: Operand) -> None:
        if isinstance(operand, Computed) or operand in self._sources:
            return
        if isinstance(operand, Given):
            slot = operand.slot if self._slots is None else self._slots[operand.slot]
            self._sources[operand] = len(self._described)
            self._described.append(("open", slot))
        elif isinstance(operand, SizeOf):
            leaf = operand.leaf if self._leaves is None else self._leaves[operand.leaf]
            self._sources[operand] = len(self._described)
            self._described.append(("size", (leaf, operand.dim)))
        elif isinstance(operand, TensorLeaf):
            leaf = operand.leaf if self._leaves is None else self._leaves[operand.leaf]
            self._sources[operand] = len(self._described)
            self._described.append(("leaf", leaf))
        else:
            self._sources[operand] = self._add_object(operand.value)

    def _add_object(self, value: Any) -> int:
        self._described.append(("object", value))
        return len(self._described) - 1

    def position(self, operand: Operand) -> int:
        """Return the position of the value of an operand."""
        if isinstance(operand, Computed):
            return self.step(operand.step)
        return self._sources[operand]


class FlatNumbers:
    """The numbers of what takes the inputs of Dynamo's graph and returns its results.

    Attributes:
        bindings: of all inputs of the program but for constants.
        values: the numbers.
        described: keyword arguments of `_C.Specialization`.
    """

    def __init__(self, captured: CapturedProgram) -> None:
        inputs = captured.inputs[: captured.dynamo_input_count]
        slots: dict[int, int] = {}
        leaves: dict[int, int] = {}
        self.bindings: list[int | tuple[str, int]] = []
        self._is_given: list[bool] = []
        for position, binding in enumerate(inputs):
            made = False
            if isinstance(binding, NumberInput):
                self.bindings.append(("open", slots.setdefault(binding.index, len(slots))))
                made = isinstance(captured.numbers[binding.index].position, Made)
            else:
                self.bindings.append(position - len(slots))
                if isinstance(binding, ArgumentLeaf):
                    leaves.setdefault(binding.index, position - len(slots))
            self._is_given.append(not made)
        self._results = captured.number_results.results
        self.values = NumberValues(captured.number_results, slots=slots, leaves=leaves)
        self.described: dict[str, Any] = {
            "numbers": [
                (captured.numbers[slot].type, None, None, *self._place(captured, slot, position))
                for slot, position in slots.items()
            ],
            "results": self.values.described,
        }

    def given(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Return those of all inputs that are passed."""
        return tuple(value for value, given in zip(inputs, self._is_given, strict=False) if given)

    def output(self, tensors: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the description of a tuple of all results, by those of the tensors."""
        if all(result is None for result in self._results):
            return ("tuple", list(tensors))
        rest = iter(tensors)
        return (
            "tuple",
            [
                next(rest) if result is None else ("number", self.values.number(index))
                for index, result in enumerate(self._results)
            ],
        )

    def _place(self, captured: CapturedProgram, slot: int, position: int) -> tuple[Any, ...]:
        made = captured.numbers[slot].position
        return ("value", self.values.step(made.step)) if isinstance(made, Made) else (position,)
