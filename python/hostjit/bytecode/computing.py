# SPDX-License-Identifier: Apache-2.0
"""Statements that do nothing but compute: with tensors and numbers, and by names that are known."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterable, Sequence, Set

import torch
from torch._dynamo.bytecode_transformation import Instruction

from hostjit.bytecode.flow import LOADS, CodeFlow
from hostjit.bytecode.stored_attributes import StoredAttribute, object_of_store

__all__ = ["MOST_INSTRUCTIONS", "Chain", "Facts", "Statements", "is_of_tensors", "is_test"]

aten = torch.ops.aten

MOST_INSTRUCTIONS = 400
"""With more instructions, what need not be computed costs too much."""
# What computes, and changes nothing but variables of the function, given tensors and numbers.
_COMPUTING = LOADS | {
    *("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD"),
    *("STORE_FAST", "PUSH_NULL", "PRECALL", "CALL", "KW_NAMES", "CALL_KW", "COPY", "SWAP"),
    *("POP_TOP", "NOP", "NOT_TAKEN", "BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "COMPARE_OP"),
    *("UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT", "TO_BOOL", "BUILD_TUPLE", "BUILD_LIST"),
    *("BUILD_SLICE", "UNPACK_SEQUENCE"),
    *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
    *("JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "IS_OP"),
}
# Of calls, by their names: with these, what computes does more.
_NOT_COMPUTING = frozenset({"out", "inplace", "generator"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
# Of tensors and numbers, besides operators: what they are, and what operators do by other names.
_OF_TENSORS = frozenset(
    {
        *("shape", "ndim", "dtype", "device", "T", "mT", "H", "mH", "real", "imag"),
        *("item", "size", "dim", "numel", "float", "double", "half", "bfloat16", "long", "int"),
        *("bool", "type_as"),
    }
)
# Operators that do more have these names, and attributes.
_EXCLUDED = frozenset(
    {"data", "grad", "pin_memory", "set_data", "backward", "retain_grad", "resize", "is_leaf"}
)
# Of BINARY_OP.
_FIRST_IN_PLACE = 13
_LAST_OF_NUMBERS = 25


@dataclasses.dataclass(frozen=True)
class Chain:
    """What code asks for by names, from a variable on: `self.limits.step`.

    Attributes:
        is_global: the variable is one of the module.
        name: of the variable.
        attributes: those that follow.
    """

    is_global: bool
    name: str
    attributes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known of statements that compute.

    Attributes:
        chains: what they ask for.
        in_place: variables of which they make others by `+=` and the like.
        stores: attributes that they assign, in the order of the code.
        loads: those of them that they read, too.
        stores_in_place: those of which they make others by `+=` and the like.
    """

    chains: frozenset[Chain]
    in_place: frozenset[str]
    stores: tuple[StoredAttribute, ...]
    loads: frozenset[StoredAttribute]
    stores_in_place: frozenset[StoredAttribute]


def is_test(name: str) -> bool:
    """Tell whether an operation asks for the truth of something, and jumps by that."""
    return name.startswith("POP_JUMP") and not name.endswith("NONE")


@functools.cache
def is_of_tensors(name: str) -> bool:
    """Tell whether what tensors have by a name, or PyTorch, computes and changes nothing."""
    if name in _OF_TENSORS:
        return True
    if name.startswith("_") or name.endswith("_") or name in _EXCLUDED:
        return False
    packet = getattr(aten, name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    overloads = [getattr(packet, each)._schema for each in packet.overloads()]
    return all(
        not each.is_mutable or any(argument.is_out for argument in each.arguments)
        for each in overloads
    )


class Statements:
    """The statements of some code that do nothing but compute.

    Attributes:
        flow: of the code.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        flow: CodeFlow,
        others: Set[int] = frozenset(),
        *,
        store: bool = False,
    ) -> None:
        """Look at some code.

        Args:
            instructions: of the code.
            flow: of the code.
            others: instructions of which `facts` need not know.
            store: statements may assign attributes of objects in variables, too.
        """
        self._instructions = instructions
        self.flow = flow
        self._others = others
        self._objects: dict[int, int] = {}  # by the instructions that assign their attributes
        if store:
            for index, each in enumerate(instructions):
                if each.opname == "STORE_ATTR" and index in flow.depths:
                    place = object_of_store(instructions, index, flow.depths)
                    if place is not None:
                        self._objects[index] = place

    def grown(
        self, start: int, base: int, ends: Set[int] = frozenset()
    ) -> tuple[dict[int, None], dict[int, None]]:
        """Return statements that compute, from one on, and where others follow; in order.

        Where they are too many, others follow, too.

        Args:
            start: the first instruction.
            base: how many values are on the stack between statements.
            ends: where others follow in any case.
        """
        inside, exits, pending = dict[int, None](), dict[int, None](), collections.deque([start])
        while pending:
            index = pending.popleft()
            if index in inside or index in exits:
                continue
            is_end = index in ends or len(inside) > MOST_INSTRUCTIONS
            statement = None if is_end else self._computed(index, base)
            if statement is None:
                exits[index] = None
                continue
            inside |= dict.fromkeys(sorted(statement[0]))
            pending += sorted(statement[1])
        return inside, exits

    def _computed(self, index: int, base: int) -> tuple[set[int], set[int]] | None:
        """The instructions of a statement that computes, and those that follow; None for others."""
        inside, behind, pending = set[int](), set[int](), [index]
        while pending:
            at = pending.pop()
            if at in inside:
                continue
            each = self._instructions[at]
            if not (each.opname in _COMPUTING or is_test(each.opname) or at in self._objects):
                return None
            if each.opname == "POP_TOP" and self.flow.depths[at] <= base:
                return None
            inside.add(at)
            for after, _ in self.flow.successors(at):
                depth = self.flow.depths[after]
                if depth < base:
                    return None
                if depth == base:
                    behind.add(after)
                else:
                    pending.append(after)
        return inside, behind

    def _stores(self, index: int) -> bool:
        return self._instructions[index].opname == "STORE_FAST"

    def facts(self, inside: Set[int]) -> Facts | None:
        """Return what is known of statements; None where they may do more."""
        chains: set[Chain] = set()
        in_place: set[str] = set()
        seen: set[int] = set()
        objects = {self._objects[index]: index for index in inside & self._objects.keys()}
        stores = [*dict.fromkeys(map(self._stored, sorted(objects.values())))]
        # `self.cost += x` reads first.
        in_place_stores = {self._stored(i) for place, i in objects.items() if place < i - 1}
        seen |= {place + 2 for place, index in objects.items() if place < index - 1}
        for index in sorted(inside - self._others - objects.keys()):
            each = self._instructions[index]
            if each.opname in LOADS or each.opname in ("LOAD_GLOBAL", "LOAD_DEREF"):
                if each.opname == "LOAD_DEREF":
                    return None
                names: list[str] = []
                at = index + 1
                while at in inside and self._instructions[at].opname in _ATTRIBUTES:
                    names.append(self._instructions[at].argval)
                    seen.add(at)
                    at += 1
                is_global = each.opname == "LOAD_GLOBAL"
                chains.add(Chain(is_global, each.argval, tuple(names)))
            elif each.opname in _ATTRIBUTES and index not in seen:
                if not is_of_tensors(each.argval):
                    return None
            elif each.opname in ("KW_NAMES", "CALL_KW"):
                if not _NOT_COMPUTING.isdisjoint(_keywords(self._instructions, index)):
                    return None
            elif each.opname == "BINARY_OP":
                if (each.arg or 0) > _LAST_OF_NUMBERS:
                    continue  # it looks up an item
                if (each.arg or 0) >= _FIRST_IN_PLACE:
                    store = self._instructions[index + 1]
                    if index + 2 in objects.values():
                        continue
                    if store.opname != "STORE_FAST":
                        return None
                    in_place.add(store.argval)
        made = {self._instructions[i].argval for i in inside if self._stores(i)}
        if any(each.variable in made for each in stores):
            return None
        loads = {*in_place_stores}
        for chain in chains:
            first = StoredAttribute(chain.name, next(iter(chain.attributes), ""))
            if first in stores and not chain.is_global:
                loads.add(first)
                if not all(map(is_of_tensors, chain.attributes[1:])):
                    return None
            if chain.name in made and not all(map(is_of_tensors, chain.attributes)):
                return None
        return Facts(
            frozenset(chains),
            frozenset(in_place),
            tuple(stores),
            frozenset(loads),
            frozenset(in_place_stores),
        )

    def _stored(self, index: int) -> StoredAttribute:
        """The attribute that an instruction assigns."""
        variable = self._instructions[self._objects[index]].argval
        return StoredAttribute(variable, self._instructions[index].argval)


def _keywords(instructions: Sequence[Instruction], index: int) -> Iterable[str]:
    """The names of the keyword arguments of a call, which an instruction tells."""
    found = instructions[index - (instructions[index].opname == "CALL_KW")].argval
    return found if isinstance(found, tuple) else ("out",)
