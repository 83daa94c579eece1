# SPDX-License-Identifier: Apache-2.0
"""The table of a fusion's operations: a name, a signature, and what writes the graph.

The signature is that of the function that writes the graph, without its first parameter, which is
the `Builder`. Its annotations say what arguments may be:

    Tensor                a tensor of the fusion
    Operand               a tensor, a scalar of the fusion, or a Python number
    Scalar                a scalar of the fusion or a Python number
    list[Tensor], list[Scalar], list[int], list[bool]
    int, bool, DataType   known when the operation is added

each also with `| None`.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hostjit._C import Error
from hostjit.fusion.builder import Builder
from hostjit.fusion.data_type import DataType
from hostjit.fusion.values import Scalar, Tensor

__all__ = ["OPERATIONS", "UNAVAILABLE", "Operation", "nearest", "operation", "register"]


_Write = TypeVar("_Write", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        name: as in `fd.ops`.
        family: unary, binary, ternary, reduction, scan, shape, indexing, factory, random, product
            or attention.
        write: adds it to a graph and returns its results.
    """

    name: str
    family: str
    write: Callable[..., Any]

    def signature(self) -> inspect.Signature:
        """Return the signature that users see."""
        whole = inspect.signature(self.write)
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    def bind(self, builder: Builder, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, converted and without those left out."""
        signature = self.signature()
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            shown = signature.replace(return_annotation=inspect.Signature.empty)
            raise builder.error(f"{error}; its signature is {self.name}{shown}") from None
        hints = typing.get_type_hints(self.write)
        return {
            name: _converted(builder, name, value, hints[name], signature.parameters[name].default)
            for name, value in given.items()
        }


OPERATIONS: dict[str, Operation] = {}
# What nvFuser has and ATen has nothing for, with the reason.
UNAVAILABLE: dict[str, str] = {}


def register(name: str, family: str, write: Callable[..., Any]) -> None:
    """Add an operation to the table."""
    assert name not in OPERATIONS, name
    OPERATIONS[name] = Operation(name, family, write)


def operation(family: str) -> Callable[[_Write], _Write]:
    """Add the decorated function to the table, under its own name without a closing underscore."""

    def add(write: _Write) -> _Write:
        register(write.__name__.removesuffix("_"), family, write)
        return write

    return add


def nearest(name: str) -> list[str]:
    """Return names of operations like this one, the most similar first."""
    found = difflib.get_close_matches(name, OPERATIONS, n=5, cutoff=0.5)
    return found + [known for known in OPERATIONS if name and name in known and known not in found]


def _converted(builder: Builder, name: str, value: Any, hint: Any, default: Any) -> Any:
    allowed = set(typing.get_args(hint)) if _is_union(hint) else {hint}
    if value is None and (type(None) in allowed or default is None):
        return None
    for kind in allowed - {type(None)}:
        found = _as(builder, value, kind)
        if found is not None:
            _check_owner(builder, name, found)
            return found
    expected = " or ".join(sorted(_NAMES[str(kind)] for kind in allowed - {type(None)}))
    raise builder.error(f"argument '{name}' is {_said(value)}, expected {expected}")


def _is_union(hint: Any) -> bool:
    return bool(typing.get_args(hint)) and typing.get_origin(hint) is not list


def _as(builder: Builder, value: Any, kind: Any) -> Any:
    """The value as this kind of argument, None where it is none."""
    if typing.get_origin(kind) is list:
        if not isinstance(value, (list, tuple)):
            return None
        (of,) = typing.get_args(kind)
        items = [_as(builder, item, of) for item in value]
        return None if any(item is None for item in items) else items
    if kind is Scalar:
        if isinstance(value, (bool, int, float, complex)):
            return builder.constant(value)
        return value if isinstance(value, Scalar) else None
    if kind in (int, bool):
        if isinstance(value, Scalar) and not value.is_symbolic():
            value = value.value
        if kind is bool and type(value) is int and value in (0, 1):
            return bool(value)
        return value if type(value) is kind else None
    return value if isinstance(value, kind) else None


def _check_owner(builder: Builder, name: str, value: Any) -> None:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, (Tensor, Scalar)) and item.fusion is not builder.fusion:
            raise builder.error(f"argument '{name}' is {item} of another FusionDefinition")


def _said(value: Any) -> str:
    if isinstance(value, (Tensor, Scalar, DataType)):
        return str(value)
    return f"{value!r} of type {type(value).__name__}"


_NAMES = {
    str(Tensor): "a tensor of the fusion",
    str(Scalar): "a scalar or a number",
    str(list[Tensor]): "a list of tensors",
    str(list[Scalar]): "a list of scalars and ints",
    str(list[int]): "a list of ints",
    str(list[bool]): "a list of bools",
    str(int): "an int",
    str(bool): "a bool",
    str(DataType): "a DataType",
}


def unavailable(name: str) -> Error:
    """Return the error for what nvFuser has and hostjit has not."""
    return Error(f"ops.{name}: not available in hostjit: {UNAVAILABLE[name]}")
