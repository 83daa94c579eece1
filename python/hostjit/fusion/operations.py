# SPDX-License-Identifier: Apache-2.0
"""`fd.ops`: the operations of the table, for one definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

# Each adds its operations to the table.
from hostjit.fusion import (
    factories,
    indexing,
    pointwise,
    products,
    reductions,
    selection,
    shapes,
)
from hostjit.fusion.operation import OPERATIONS, UNAVAILABLE, Operation, nearest, unavailable

if TYPE_CHECKING:
    from hostjit.fusion.defining import Definition

__all__ = ["Operations"]

_FAMILIES = (factories, indexing, pointwise, products, reductions, selection, shapes)


class Operations:
    """The operations by name: `fd.ops.add(t0, t1)` adds one to the definition.

    `help(fd.ops.sum)` and `dir(fd.ops)` tell of them. An operation takes tensors and scalars of its
    definition, and Python numbers in their place; it raises hostjit.Error for what it cannot take.
    """

    def __init__(self, fusion: Definition) -> None:
        self._fusion = fusion

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in UNAVAILABLE:
            raise unavailable(name)
        found = OPERATIONS.get(name)
        if found is None:
            near = nearest(name)
            hint = f"; nearest: {', '.join(near)}" if near else ""
            raise AttributeError(f"ops.{name}: there is no such operation{hint}")
        return _bound(self._fusion, found)

    def __dir__(self) -> list[str]:
        return sorted(OPERATIONS)


def _bound(fusion: Definition, operation: Operation) -> Callable[..., Any]:
    def add(*args: Any, **kwargs: Any) -> Any:
        return fusion.add_operation(operation, args, kwargs)

    add.__name__ = operation.name
    add.__qualname__ = f"FusionDefinition.ops.{operation.name}"
    add.__doc__ = operation.write.__doc__
    add.__signature__ = operation.signature()  # type: ignore[attr-defined]
    return add
