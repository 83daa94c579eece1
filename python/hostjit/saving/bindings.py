# SPDX-License-Identifier: Apache-2.0
"""Where a program finds its inputs, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.saving.arguments import ExampleCall, example_tensor, tensor_to_json
from hostjit.saving.names import Place
from hostjit.saving.numbers import NumberWriter
from hostjit.saving.programs import ProgramWriter
from hostjit.saving.tensors import TensorWriter, tensor_name
from hostjit.saving.values import Classes

__all__ = ["Parts", "Writers", "binding_from_json", "binding_to_json", "example_inputs"]


class Writers:
    """What collects the parts of a file."""

    def __init__(
        self, programs: ProgramWriter, tensors: TensorWriter, numbers: NumberWriter
    ) -> None:
        self.programs = programs
        self.tensors = tensors
        self.numbers = numbers


class Parts:
    """The parts of a file, made.

    Attributes:
        programs: in their order.
        tensors: in their order.
        described: the tensors as JSON.
        given: positions in `tensors` of those that are not the file's own.
        places: of numbers.
        classes: that values are read with.
        optimizers: as of `GivenOptimizer`, those that are given.
    """

    def __init__(
        self,
        programs: Sequence[_C.CompiledProgram],
        tensors: Sequence[torch.Tensor],
        described: Sequence[dict[str, Any]],
        given: frozenset[int],
        places: Sequence[Place],
        classes: Classes,
        optimizers: Sequence[Any] = (),
    ) -> None:
        self.programs = programs
        self.tensors = tensors
        self.described = described
        self.given = given
        self.places = places
        self.classes = classes
        self.optimizers = optimizers

    def name_of(self, number: int) -> str:
        """Return what a tensor is called in messages."""
        return tensor_name(self.described[number])


_NUMBERS = {"int": int, "float": float}


def binding_to_json(binding: Any, guard: dict[str, Any] | None, writers: Writers) -> Any:
    """Write a binding as `_C.Specialization.describe` has it; `guard` is of what is bound."""
    if isinstance(binding, int):
        return binding
    if isinstance(binding, torch.Tensor):
        return ["tensor", writers.tensors.add(binding)]
    match binding:
        case ("open", slot):
            return ["open", slot]
        case ("open", slot, kind):
            return ["open", slot, kind.__name__]
        case ("gradient", owner, *_):
            number = writers.tensors.add_with_gradient(owner)
            return ["gradient", number, guard and tensor_to_json(torch.Tensor, guard)]
        case ("number", holder, key, position):
            return ["number", writers.numbers.add(holder, key), position]
        case ("handed_on", slot, *_):
            assert guard is not None
            return ["handed_on", slot, tensor_to_json(torch.Tensor, guard)]
    raise AssertionError(f"unknown binding {binding!r}")


def binding_from_json(binding: Any, parts: Parts) -> Any:
    """Return a binding as `_C.Specialization` takes it."""
    match binding:
        case ["tensor", number]:
            return parts.tensors[number]
        case ["open", slot]:
            return ("open", slot)
        case ["open", slot, kind]:
            return ("open", slot, _NUMBERS[kind])
        case ["gradient", number, guard]:
            owner = parts.tensors[number]
            return ("gradient", owner) + ((example_tensor(guard),) if guard else ())
        case ["number", number, position]:
            return ("number", *parts.places[number], position)
        case ["handed_on", slot, guard]:
            return ("handed_on", slot, example_tensor(guard))
        case int():
            return binding
    raise ValueError(f"unknown kind of input {binding!r}")


def example_inputs(bindings: Sequence[Any], call: ExampleCall, floats: Sequence[bool]) -> list[Any]:
    """Return what the inputs of a program are at the example call; `floats`: of open numbers."""

    def example(binding: Any) -> Any:
        if isinstance(binding, int):
            return call.tensors[binding]
        if isinstance(binding, torch.Tensor):
            return binding
        if binding[0] == "open" and len(binding) == 3:  # as a tensor
            dtype = torch.float64 if binding[2] is float else torch.int64
            return torch.zeros((), dtype=dtype, device="cpu")
        if binding[0] == "open":
            return 0.0 if floats[binding[1]] else 0
        if binding[0] in ("gradient", "handed_on"):
            return binding[2]
        return torch.zeros((), dtype=torch.float64, device="cpu")

    return [example(binding) for binding in bindings]
