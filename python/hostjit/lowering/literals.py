# SPDX-License-Identifier: Apache-2.0
"""Arguments of an ATen call as Host IR literals and operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.dynamic_dims import is_number, refusal
from hostjit.capturing.errors import ComputedNumberError
from hostjit.capturing.numbers.host_numbers import HostNumber
from hostjit.kernels.sizes import Size
from hostjit.lowering.devices import device_of
from hostjit.lowering.sizes import check_range, size_of
from hostjit.lowering.types import dtype_name

__all__ = ["CallArguments"]


class CallArguments:
    """Collects one literal per schema argument of a call, and the values that they refer to.

    Attributes:
        literals: in schema order, keyword-only arguments included, defaults filled in.
        inputs: operands that the call reads.
        mutated: operands that the call writes.
        aliases: positions of operands whose memory a result may share.
    """

    def __init__(
        self,
        node: torch.fx.Node,
        value_of: Callable[[torch.fx.Node], _C.Value],
        index_of: Callable[[Size], _C.Value],
        number_of: Mapping[str, _C.Value],
    ) -> None:
        target = node.target
        assert isinstance(target, torch._ops.OpOverload)
        self._device = device_of(node)
        self._reads: list[torch.fx.Node] = []
        self._writes: list[torch.fx.Node] = []
        self._aliased: list[torch.fx.Node] = []
        arguments = []
        for position, argument in enumerate(target._schema.arguments):
            if position < len(node.args) and not argument.kwarg_only:
                found: Any = node.args[position]
            elif argument.name in node.kwargs:
                found = node.kwargs[argument.name]
            elif argument.has_default_value():
                found = _default(argument)
            else:
                found = None
            self._note_effects(argument.alias_info, found)
            arguments.append(found)
        sizes = list(dict.fromkeys(_sizes_in(arguments)))
        numbers = list(dict.fromkeys(_numbers_in(arguments)))
        operands = [*self._reads, *sizes, *numbers, *self._writes]
        self._positions = {operand: index for index, operand in enumerate(operands)}
        self.inputs = [value_of(operand) for operand in self._reads]
        self.inputs += [index_of(size) for size in sizes]
        self.inputs += [number_of[number.name] for number in numbers]
        self.mutated = [value_of(operand) for operand in self._writes]
        self.aliases = sorted({self._positions[operand] for operand in self._aliased})
        self.literals = [self._literal(found) for found in arguments]

    def _note_effects(self, alias_info: Any, found: Any) -> None:
        writes = alias_info is not None and alias_info.is_write
        nodes: list[torch.fx.Node] = []
        torch.fx.map_arg(found, nodes.append)
        for operand in nodes:
            if writes and operand not in self._writes:
                if operand in self._reads:
                    self._reads.remove(operand)
                self._writes.append(operand)
            elif operand not in self._writes and operand not in self._reads:
                self._reads.append(operand)
            if alias_info is not None:
                self._aliased.append(operand)

    def _literal(self, found: Any) -> Any:
        if isinstance(found, torch.fx.Node):
            return _C.Operand(self._positions[found])
        if isinstance(found, torch.SymInt):
            size = size_of(found)
            return size if isinstance(size, int) else _C.Operand(self._positions[size])
        if isinstance(found, HostNumber):
            return _C.Operand(self._positions[found])
        if is_number(found):
            raise refusal(f"an operator takes {found}, a number that follows from sizes")
        if isinstance(found, (list, tuple)):
            return [self._literal(item) for item in found]
        if isinstance(found, torch.dtype):
            return _C.Symbol("dtype", dtype_name(found))
        if isinstance(found, torch.device):
            # Without an index it is the current one, which may be another at a call.
            is_open = found.type == "cuda" and found.index is None
            return _C.Symbol("device", str(self._device if is_open else found))
        if isinstance(found, torch.layout):
            return _C.Symbol("layout", str(found).removeprefix("torch."))
        if isinstance(found, torch.memory_format):
            return _C.Symbol("memory_format", str(found).removeprefix("torch."))
        return found


def _sizes_in(found: Any) -> Iterator[Size]:
    """The sizes among arguments that are only known at the call."""
    if isinstance(found, (list, tuple)):
        for item in found:
            yield from _sizes_in(item)
    elif isinstance(found, torch.SymInt) and not isinstance(size := size_of(found), int):
        check_range(found)
        yield size


def _numbers_in(found: Any) -> Iterator[HostNumber]:
    """The floats among arguments that the call brings."""
    if isinstance(found, (list, tuple)):
        for item in found:
            yield from _numbers_in(item)
    elif isinstance(found, HostNumber):
        if found.operation is not None:
            raise ComputedNumberError(found)
        yield found


# Schemas give the defaults of these types as numbers of C++ enums; there are no others.
_ENUMS = {("ScalarType", 4): torch.int64, ("MemoryFormat", 0): torch.contiguous_format}


def _default(argument: Any) -> Any:
    value = argument.default_value
    kind = str(argument.real_type).removeprefix("Optional[").removesuffix("]")
    return _ENUMS.get((kind, value), value) if type(value) is int else value
