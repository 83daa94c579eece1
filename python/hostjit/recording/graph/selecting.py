# SPDX-License-Identifier: Apache-2.0
"""What variables of a recorded call become by a decision: one of two things, selected."""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from hostjit.bytecode.made_code import is_of_choice
from hostjit.bytecode.returns import RETURNED
from hostjit.bytecode.stored_attributes import attribute_of
from hostjit.bytecode.uses import uses_of_attribute, uses_of_variable
from hostjit.capturing.constants import IMMUTABLE_TYPES, same_constant
from hostjit.capturing.instances import is_one_of
from hostjit.recording.code.libraries import is_own
from hostjit.recording.graph.kept_numbers import are_kept, callers_keep, returns_to
from hostjit.recording.graph.read_numbers import LARGEST_SMALL_INT, TENSORS, ReadNumber
from hostjit.recording.graph.recorded_graph import memory_of

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = ["CannotSelectError", "Selected", "cost_of", "is_number", "root_of"]

aten = torch.ops.aten


# Of operands of these, each number is used several times.
_PRODUCTS = (aten.mm, aten.addmm, aten.bmm, aten.baddbmm)
_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


class CannotSelectError(Exception):
    """Two things cannot be selected."""


def cost_of(func: Any, args: Any) -> int:
    """Return about how many numbers an operator reads, and multiplies."""
    sizes = [value.shape for value in pytree.tree_leaves(args) if isinstance(value, torch.Tensor)]
    count = sum(size.numel() for size in sizes)
    if func.overloadpacket in _PRODUCTS:
        count += sizes[-2].numel() * sizes[-1][-1]
    return count


def root_of(node: torch.fx.Node) -> torch.fx.Node:
    """Return what a node is a view of."""
    while isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
        node = node.all_input_nodes[0]
    return node


class Selected:
    """What variables become by a decision.

    Attributes:
        tensors: of each that is a tensor, what it is in the graph, and the memory that it may have.
    """

    def __init__(
        self, recorder: Recorder, code: types.CodeType, decision: torch.Tensor, answer: bool
    ) -> None:
        """Select by a decision, which is an answer now. `code`: whose variables they are."""
        self._recorder = recorder
        self._code = code
        self._decision = decision
        self._answer = answer
        self.tensors: list[tuple[torch.fx.Node, set[int]]] = []
        self._made: dict[tuple[int, int], torch.Tensor] = {}

    def variable(self, name: str, taken: Any, other: Any, place: int = -1) -> Any:
        """Return what a variable becomes, which is `taken` now; raises CannotSelectError.

        Args:
            name: of the variable, empty for an item of a tuple in one.
            taken: what it is now.
            other: what it is by the other answer.
            place: which item of a tuple that the function returns this is; -1 for all of it, -2 for
                what is deeper in it.
        """
        if taken is other:
            return taken
        if is_one_of(type(taken), IMMUTABLE_TYPES) and same_constant(taken, other):
            return taken
        if is_number(taken) and is_number(other):
            kinds = {_kind_of_number(each) for each in (taken, other)}
            if not any(isinstance(each, ReadNumber) for each in (taken, other)):
                self._check_kept(name, place, is_truth=bool in kinds)
            return self._number(taken, other)
        if type(taken) is type(other) is tuple and len(taken) == len(other):
            return self._tuple(name if name == RETURNED else "", taken, other, place)
        pair = id(taken), id(other)
        if pair not in self._made:
            if not (is_one_of(type(taken), TENSORS) and is_one_of(type(other), TENSORS)):
                raise CannotSelectError
            self._made[pair] = self._tensor(taken, other)
        return self._made[pair]

    def _tuple(self, name: str, taken: Any, other: Any, place: int) -> tuple[Any, ...]:
        places = range(len(taken)) if place == -1 else [-2] * len(taken)
        return tuple(map(functools.partial(self.variable, name), taken, other, places))

    def _tensor(self, taken: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        if type(taken) is not torch.Tensor or type(other) is not torch.Tensor:
            raise CannotSelectError
        if _kind_of(taken) != _kind_of(other) or taken.requires_grad or other.requires_grad:
            raise CannotSelectError
        if taken.is_inference() or other.is_inference() or not taken.is_cpu:
            raise CannotSelectError
        made = self._where(taken, other)
        node = self._recorder.node_of(made)
        if node is None or made.stride() != taken.stride():
            raise CannotSelectError
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            again = taken.detach()
            memory = {memory_of(taken), memory_of(other)}
            self._recorder.note_as(again, node)
        originals = self._recorder.choosing.originals
        originals[id(again)] = originals.get(id(taken), taken)
        self._recorder.choosing.aliases.append(again)
        flags = [self._is_outside(each) for each in (taken, other)]
        if any(flag is not None for flag in flags):
            never = torch.full((), False, dtype=torch.bool, device="cpu")
            pair = (never if flag is None else flag for flag in flags)
            choosing = self._recorder.choosing
            choosing.outside[node] = self._where(*pair)
            choosing.origins[node] = self._origins(taken) | self._origins(other)
        self.tensors.append((node, memory))
        return again

    def _is_outside(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Whether a tensor was there before the call, by a bool; None where it was not."""
        node = self._recorder.node_of(tensor)
        assert node is not None
        root = root_of(node)
        if root.op == "placeholder":
            return torch.full((), True, dtype=torch.bool, device="cpu")
        return self._recorder.choosing.outside.get(root)

    def _origins(self, tensor: torch.Tensor) -> set[torch.fx.Node]:
        """The inputs that a tensor may be, which was there before the call then."""
        node = self._recorder.node_of(tensor)
        assert node is not None
        root = root_of(node)
        return (
            {root} if root.op == "placeholder" else self._recorder.choosing.origins.get(root, set())
        )

    def _where(self, taken: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        pair = (taken, other) if self._answer else (other, taken)
        with torch.no_grad():
            return torch.where(self._decision, *pair)

    def attribute(self, owner: Any, name: str, taken: Any, other: Any) -> Any:
        """Return what an attribute of an object becomes; raises CannotSelectError."""
        is_constant = is_one_of(type(taken), IMMUTABLE_TYPES) and same_constant(taken, other)
        if taken is other or is_constant or not (is_number(taken) and is_number(other)):
            return self.variable("", taken, other)
        if not self._recorder.takes_number(owner, name):
            if all(_kind_of_number(each) is not bool for each in (taken, other)):
                self._recorder.choosing.wanted.append((owner, name))
            raise CannotSelectError
        return self._number(taken, other)

    def _number(self, taken: Any, other: Any) -> ReadNumber:
        """Return what stands for a number."""
        numbers = [taken, other]
        kinds = {_kind_of_number(each) for each in numbers}
        if len(kinds) > 1:
            raise CannotSelectError
        is_int = kinds == {int}
        if is_int and not all(map(_is_small, numbers)):
            raise CannotSelectError
        found = [self._tensor_of(each) for each in numbers]
        self._recorder.has_numbers = True
        return ReadNumber(self._where(*found), self._recorder, is_small=is_int)

    def _tensor_of(self, number: Any) -> torch.Tensor:
        if isinstance(number, ReadNumber):
            return number.tensor
        return torch.full((), number, dtype=_DTYPES[type(number)], device="cpu")

    def _check_kept(self, name: str, place: int, *, is_truth: bool) -> None:
        """Refuse a variable whose number others may see; raises CannotSelectError.

        `is_truth`: it is True or False, of which code may ask whether it is that.
        """
        frame = sys._getframe()
        while not is_of_choice(frame.f_code) and is_own(frame.f_code.co_filename):
            assert frame.f_back is not None
            frame = frame.f_back
        if name == RETURNED:
            places = frozenset({place})
            if not returns_to(self._recorder.caller, frame) and (
                place < -1 or not callers_keep(places, frame, self._recorder, is_truth=is_truth)
            ):
                raise CannotSelectError
            return
        attribute = attribute_of(name)
        if attribute:
            uses = uses_of_attribute(self._code, attribute)
        else:
            uses = uses_of_variable(self._code, name) if name else None
        if uses is None or not are_kept(uses, frame, self._recorder, is_truth=is_truth):
            raise CannotSelectError


def _kind_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.device, tensor.layout, tensor.shape, tensor.stride()


def is_number(value: Any) -> bool:
    """Tell whether something is a bool, an int or a float, or stands for one."""
    return type(value) in _DTYPES or isinstance(value, ReadNumber)


def _kind_of_number(value: Any) -> type:
    if isinstance(value, ReadNumber):
        dtype = value.tensor.dtype
        return next(kind for kind, each in _DTYPES.items() if each is dtype)
    return type(value)


def _is_small(value: Any) -> bool:
    return value.is_small if isinstance(value, ReadNumber) else abs(value) <= LARGEST_SMALL_INT
