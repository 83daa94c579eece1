# SPDX-License-Identifier: Apache-2.0
"""What the inputs of a recorded graph are, and where each call finds them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from hostjit.capturing.program import ArgumentLeaf, BoundTensor, InputBinding
from hostjit.capturing.tensors import TensorFacts, check_tensor

__all__ = [
    *("Bound", "Constant", "Gradient", "Kept", "Leaf", "LiveInput", "Number", "OpenArgument"),
    *("Source", "bind", "describe"),
]


@dataclasses.dataclass(frozen=True, eq=False)
class Leaf:
    """Tensor leaf `index` of the arguments."""

    index: int
    tensor: torch.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Bound:
    """A tensor that the call reached elsewhere: a parameter, a buffer, a global."""

    tensor: torch.Tensor
    path: str


@dataclasses.dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that nobody else has."""

    tensor: torch.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Gradient:
    """What `.grad` of `owner` is at the call."""

    owner: torch.Tensor
    tensor: torch.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Kept:
    """What is in an attribute of an object when a call begins, which replaces it.

    Attributes:
        tensor: what it is, without a gradient.
        attributes: the dict of the object.
        name: of the attribute.
    """

    tensor: torch.Tensor
    attributes: dict[str, Any]
    name: str


@dataclasses.dataclass(frozen=True, eq=False)
class Number:
    """A float of a dict, read at the call; `description` as `_C.Specialization` takes it."""

    tensor: torch.Tensor
    description: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class OpenArgument:
    """A number among the arguments or attributes that may be any; as a tensor without dims.

    Attributes:
        tensor: what it is, of int64 or float64.
        slot: which of those of the recording it is.
        type: of the number.
        argument: which of the arguments it is.
        position: which of the numbers among the arguments it is.
        place: the dict and the key where it is, of an attribute.
    """

    tensor: torch.Tensor
    slot: int
    type: type[int] | type[float]
    argument: int | None
    position: int | None
    place: tuple[Any, ...] = ()


Source = Leaf | Bound | Constant | Gradient | Kept | Number | OpenArgument


@dataclasses.dataclass(frozen=True, eq=False)
class LiveInput(BoundTensor):
    """An input that is found anew at each call, as `description` says."""

    description: tuple[Any, ...] = ()


def bind(source: Source) -> InputBinding:
    """Return the binding of an input.

    Raises CaptureError for a tensor that is not plain.
    """
    match source:
        case Leaf(index):
            return ArgumentLeaf(index)
        case Bound(tensor, path):
            check_tensor(tensor, path)
            return BoundTensor(tensor, TensorFacts.of(tensor), path)
        case Constant(tensor):
            return BoundTensor(tensor, TensorFacts.of(tensor), "", is_constant=True)
        case Gradient(owner, tensor):
            check_tensor(tensor, "a gradient")
            facts = TensorFacts.of(tensor)
            return LiveInput(tensor, facts, "", description=("gradient", owner))
        case Kept(tensor, attributes, name):
            # Not the tensor itself, which the recording would keep alive.
            like = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
            )
            description = ("attribute", attributes, name, like)
            return LiveInput(like, TensorFacts.of(like), "", description=description)
        case OpenArgument(tensor, slot, kind):
            facts = TensorFacts.of(tensor)
            return LiveInput(tensor, facts, "", description=("open", slot, kind))
        case Number(tensor, description):
            return LiveInput(tensor, TensorFacts.of(tensor), "", description=description)


def describe(binding: InputBinding) -> Any:
    """Return what `_C.Specialization` takes."""
    if isinstance(binding, ArgumentLeaf):
        return binding.index
    assert isinstance(binding, BoundTensor)
    return binding.description if isinstance(binding, LiveInput) else binding.tensor
