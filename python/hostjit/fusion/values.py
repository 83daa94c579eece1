# SPDX-License-Identifier: Apache-2.0
"""What a fusion is made of: tensors and scalars, defined or computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.fx import Node

from hostjit.fusion.data_type import DataType

if TYPE_CHECKING:
    from hostjit.fusion.defining import Definition

__all__ = ["Number", "Operand", "Scalar", "Shape", "Tensor"]

# Sizes of the dims of a tensor; None where it is known at the call only.
Shape = tuple[int | None, ...]
Number = bool | int | float | complex


class _Value:
    def __init__(self, fusion: Definition, name: str, data_type: DataType) -> None:
        self.fusion = fusion
        self.name = name
        self._data_type = data_type

    def dtype(self) -> DataType:
        """Return the dtype."""
        return self._data_type

    def is_tensor(self) -> bool:
        """Tell a tensor from a scalar."""
        return isinstance(self, Tensor)


class Tensor(_Value):
    """A tensor of a fusion.

    Attributes:
        fusion: the definition that it belongs to.
        name: in the text of that definition.
        node: in the graph of that definition.
        sizes: as far as the definition tells.
    """

    def __init__(
        self, fusion: Definition, name: str, data_type: DataType, node: Node, sizes: Shape
    ) -> None:
        super().__init__(fusion, name, data_type)
        self.node = node
        self.sizes = sizes

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.sizes)

    def size(self, dim: int) -> Scalar:
        """Return the size of a dim: an Int, known or symbolic."""
        found = self.fusion.ops.size(self, dim)
        assert isinstance(found, Scalar)
        return found

    def shape(self) -> list[Scalar]:
        """Return the sizes of all dims."""
        return list(self.fusion.ops.shape(self))

    def __str__(self) -> str:
        sizes = ", ".join("-1" if size is None else str(size) for size in self.sizes)
        return f"{self.name}: tensor of {self.dtype()} and shape [{sizes}]"

    __repr__ = __str__


class Scalar(_Value):
    """A number of a fusion: a constant, an input, a size, or computed from others.

    Attributes:
        fusion: the definition that it belongs to.
        name: in the text of that definition; "" for a plain Python number.
        value: a constant; None for others.
        number: the node of a Python number, if it is one.
        tensor: the node of a tensor without dims, if it is computed as such; where there are both,
            it is the one to compute with.
    """

    def __init__(
        self,
        fusion: Definition,
        name: str,
        data_type: DataType,
        value: Number | None = None,
        number: Node | None = None,
        tensor: Node | None = None,
    ) -> None:
        super().__init__(fusion, name, data_type)
        self.value = value
        self.number = number
        self.tensor = tensor

    def is_symbolic(self) -> bool:
        """Whether it is known at the call only."""
        return self.value is None

    def as_number(self) -> Any:
        """Return the constant or the node of the Python number; None where there is neither."""
        return self.number if self.value is None else self.value

    def as_operand(self) -> Any:
        """Return what `as_number` does where it is to be computed with; else None."""
        return None if self.tensor is not None else self.as_number()

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        known = "" if self.value is None else f" {self.value!r}"
        return f"{name}scalar{known} of {self.dtype()}"

    __repr__ = __str__


Operand = Tensor | Scalar
