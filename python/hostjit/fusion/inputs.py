# SPDX-License-Identifier: Apache-2.0
"""What a definition says about its inputs, and whether those of a call are such."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from hostjit._C import Error
from hostjit.fusion.data_type import DataType
from hostjit.fusion.values import Shape

__all__ = ["Input", "ScalarInput", "TensorInput", "check_inputs", "describe_layout"]


@dataclasses.dataclass(frozen=True)
class TensorInput:
    """A tensor that a fusion takes.

    Attributes:
        name: in the definition.
        data_type: its dtype.
        sizes: of its dims; None for any.
        contiguity: from the outermost dim in memory to the innermost: True for one whose stride is
            the extent of the next, None for a dim that is broadcast, False for any stride.
        stride_order: for each dim, how many are further inside.
        is_cpu: it has to be on the CPU; others are on one device, whichever that is.
    """

    name: str
    data_type: DataType
    sizes: Shape
    contiguity: tuple[bool | None, ...]
    stride_order: tuple[int, ...]
    is_cpu: bool

    def __post_init__(self) -> None:
        rank = len(self.sizes)
        for dim, size in enumerate(self.sizes):
            if size is not None and (type(size) is not int or size < 0):
                raise Error(
                    f"define_tensor: shape[{dim}] is {size!r}, expected -1 (any), 1 (broadcast) or "
                    "another size"
                )
        if len(self.contiguity) != rank:
            raise Error(
                f"define_tensor: contiguity has {len(self.contiguity)} entries, expected {rank} as "
                "shape"
            )
        if sorted(self.stride_order) != list(range(rank)):
            raise Error(
                f"define_tensor: stride_order is {list(self.stride_order)}, expected each of 0 to "
                f"{rank - 1} once"
            )
        _ = self.data_type.torch_dtype

    def __str__(self) -> str:
        """Return the call that defines it."""
        sizes = [-1 if size is None else size for size in self.sizes]
        return (
            f"fd.define_tensor(shape={sizes}, contiguity={list(self.contiguity)}, "
            f"dtype={self.data_type}, is_cpu={self.is_cpu}, stride_order={list(self.stride_order)})"
        )

    def check(self, what: str, value: Any) -> None:
        """Raise Error, which begins with `what`, for what is no such tensor."""
        if not isinstance(value, torch.Tensor):
            raise Error(f"{what}: expected a tensor, found {_said(value)}")
        if value.layout is not torch.strided:
            raise Error(f"{what}: expected a strided tensor, found layout {value.layout}")
        if value.dim() != len(self.sizes):
            raise Error(
                f"{what}: expected rank {len(self.sizes)}, found rank {value.dim()} "
                f"(shape {list(value.shape)})"
            )
        dtype = self.data_type.torch_dtype
        if value.dtype != dtype:
            raise Error(f"{what}: expected dtype {dtype}, found {value.dtype}")
        if self.is_cpu and not value.is_cpu:
            raise Error(f"{what}: expected a tensor on the CPU (is_cpu), found {value.device}")
        for dim, (size, found) in enumerate(zip(self.sizes, value.shape, strict=True)):
            if size is not None and size != found:
                kind = " (broadcast)" if size == 1 else ""
                raise Error(f"{what}: expected size {size}{kind} in dim {dim}, found {found}")
        self._check_strides(what, value)

    def _check_strides(self, what: str, value: torch.Tensor) -> None:
        rank = len(self.sizes)
        inner_first = sorted(range(rank), key=lambda dim: self.stride_order[dim])
        extent = 1
        for place, dim in enumerate(inner_first):
            size, stride = value.shape[dim], value.stride(dim)
            contiguous = self.contiguity[rank - 1 - place]
            if size <= 1:
                continue
            expected = 0 if contiguous is None else extent
            if contiguous is not False and stride != expected:
                kind = "expanded" if contiguous is None else "contiguous"
                raise Error(
                    f"{what}: dim {dim} is defined as {kind}: expected stride {expected}, found "
                    f"{stride} (shape {list(value.shape)}, strides {list(value.stride())})"
                )
            if contiguous is not None:
                extent = size * stride


@dataclasses.dataclass(frozen=True)
class ScalarInput:
    """A number that a fusion takes, of the kind of its dtype or one that it holds."""

    name: str
    data_type: DataType

    def check(self, what: str, value: Any) -> None:
        """Raise Error, which begins with `what`, for what is no such number."""
        expected = f"{what}: expected a scalar of {self.data_type}, found "
        if isinstance(value, torch.Tensor):
            raise Error(f"{expected}a {value.dtype} tensor of rank {value.dim()}")
        kind = _KINDS.get(type(value))
        if kind is None or kind > self.data_type.rank_of_kind:
            raise Error(expected + _said(value))
        if kind == 1 and self.data_type.is_integral:
            limits = torch.iinfo(torch.int64)
            if self.data_type is DataType.Int32:
                limits = torch.iinfo(torch.int32)
            if not limits.min <= value <= limits.max:
                raise Error(f"{expected}{value}, which does not fit")


Input = TensorInput | ScalarInput
_KINDS: dict[type, int] = {bool: 0, int: 1, float: 2, complex: 3}


def check_inputs(inputs: Sequence[Input], values: Sequence[Any]) -> None:
    """Raise Error for the first value that is none that the definition takes."""
    if len(inputs) != len(values):
        names = ", ".join(expected.name for expected in inputs)
        raise Error(f"expected {len(inputs)} fusion inputs ({names}), found {len(values)}")
    first: tuple[str, torch.device] | None = None
    for position, (expected, value) in enumerate(zip(inputs, values, strict=True)):
        what = f"fusion input {position} ({expected.name})"
        expected.check(what, value)
        if not isinstance(expected, TensorInput) or expected.is_cpu:
            continue
        if first is None:
            first = what, value.device
        elif value.device != first[1]:
            raise Error(f"{what}: expected device {first[1]} as {first[0]}, found {value.device}")


def describe_layout(
    sizes: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[bool | None, ...], tuple[int, ...]]:
    """Return the contiguity and the stride order of a tensor with these sizes and strides."""
    rank = len(sizes)
    outer_first = sorted((d for d in range(rank) if strides[d]), key=lambda dim: -strides[dim])
    for dim in range(rank):
        if not strides[dim]:
            outer_first.insert(dim, dim)
    contiguity: list[bool | None] = []
    extent = 1
    for dim in reversed(outer_first):
        if sizes[dim] == 1 or not strides[dim]:
            contiguity.insert(0, None)
            continue
        contiguity.insert(0, strides[dim] == extent)
        extent = sizes[dim] * strides[dim]
    order = tuple(rank - 1 - outer_first.index(dim) for dim in range(rank))
    return tuple(contiguity), order


def _said(value: Any) -> str:
    if type(value) in _KINDS:
        return f"the scalar {value!r}"
    return f"an object of type {type(value).__qualname__}"
