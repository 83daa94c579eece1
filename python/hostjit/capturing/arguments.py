# SPDX-License-Identifier: Apache-2.0
"""The shape of a call's arguments: which structure and which leaves a program was captured for.

Order of traversal (a checker in another language must walk the same way): the positional
arguments in order, then the keyword arguments in the order of the call; inside a container, its
items in order (a dict in insertion order). Exact `tuple`, `list`, `dict`, `OrderedDict` and
namedtuples are containers, and so are objects of the classes that the caller names, with their
fields (`fields_of`) as items; everything else is a leaf. **Tensor leaves are numbered 0, 1, 2, ...
in that order**; other leaves have no number. The same tensor met twice gets two numbers.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import struct
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hostjit.capturing.by_fields import NONE_BY_FIELDS, ByFields
from hostjit.capturing.constants import same_constant
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.instances import is_a, is_namedtuple_type, is_one_of, shown
from hostjit.capturing.tensors import TensorFacts, check_tensor

__all__ = [
    "Argument",
    "ArgumentSpec",
    "ConstantArgument",
    "DictArgument",
    "EqualArgument",
    "InstanceArgument",
    "ListArgument",
    "NamedTupleArgument",
    "ObjectArgument",
    "TensorArgument",
    "TupleArgument",
    "containers_in",
    "describe_arguments",
    "holds_array",
    "items_of",
    "object_leaves",
    "same_keys",
    "tensor_leaves",
]

# Compared by `==` and type, because callers make a new object for every call.
EQUALITY_TYPES: tuple[type, ...] = (torch.device, range, slice, types.BuiltinMethodType)
_CONSTANT_TYPES: tuple[type, ...] = (bool, int, float, complex, str, bytes, type(None))


@dataclasses.dataclass(frozen=True)
class TensorArgument:
    """A tensor leaf: number `leaf` in traversal order, with these facts."""

    leaf: int
    facts: TensorFacts


@dataclasses.dataclass(frozen=True, eq=False)
class ConstantArgument:
    """A bool, int, float, complex, str, bytes or None: same exact type, same value.

    Floats compare by bits, so that NaN equals itself and 0.0 differs from -0.0.
    """

    value: bool | int | float | complex | str | bytes | None

    def matches(self, found: object) -> bool:
        """Tell whether `found` is the same constant."""
        value = self.value
        if type(found) is not type(value):
            return False
        if isinstance(value, float):
            return struct.pack("d", value) == struct.pack("d", found)
        if isinstance(value, complex) and isinstance(found, complex):
            return struct.pack("dd", value.real, value.imag) == struct.pack(
                "dd", found.real, found.imag
            )
        return bool(value == found)


@dataclasses.dataclass(frozen=True)
class EqualArgument:
    """A torch.device, range, slice or method of C code: same exact type, equal value."""

    value: object


@dataclasses.dataclass(frozen=True)
class ObjectArgument:
    """Any other object: the very same object. Its attributes are watched by the guards."""

    object: object


@dataclasses.dataclass(frozen=True)
class TupleArgument:
    """An exact tuple of `len(items)` items."""

    items: tuple[Argument, ...]


@dataclasses.dataclass(frozen=True)
class ListArgument:
    """An exact list of `len(items)` items."""

    items: tuple[Argument, ...]


@dataclasses.dataclass(frozen=True)
class NamedTupleArgument:
    """A tuple of exactly this namedtuple type (or torch.Size)."""

    type: type
    items: tuple[Argument, ...]


@dataclasses.dataclass(frozen=True)
class DictArgument:
    """A dict of exactly this type (dict or OrderedDict) with these keys in this order.

    Keys are str, int, bool, float, None, or objects compared by identity.
    """

    type: type
    keys: tuple[Any, ...]
    items: tuple[Argument, ...]


@dataclasses.dataclass(frozen=True)
class InstanceArgument:
    """An object of exactly this class with these fields, of those that are compared."""

    type: type
    names: tuple[str, ...]
    items: tuple[Argument, ...]


Argument = (
    TensorArgument
    | ConstantArgument
    | EqualArgument
    | ObjectArgument
    | TupleArgument
    | ListArgument
    | NamedTupleArgument
    | DictArgument
    | InstanceArgument
)


@dataclasses.dataclass(frozen=True)
class ArgumentSpec:
    """What a call must look like for the program to be valid.

    Attributes:
        args, kwargs: the structure of the positional and the keyword arguments.
        tensor_count: number of tensor leaves.
        identity_groups: a partition of the leaf numbers: two leaves are the same tensor object
            exactly when they are in the same group. Only groups of two and more are listed.
        bound_leaves: (leaf, tensor) pairs: the leaf is this parameter, buffer or global.
        by_fields: those classes whose objects are containers.
    """

    args: TupleArgument
    kwargs: DictArgument
    tensor_count: int
    identity_groups: tuple[tuple[int, ...], ...]
    bound_leaves: tuple[tuple[int, torch.Tensor], ...] = ()
    by_fields: ByFields = NONE_BY_FIELDS

    def matches(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Tell whether a call has this signature (the slow, plain form of the check)."""
        leaves: list[torch.Tensor] = []
        if not _matches(self.args, tuple(args), leaves, self.by_fields):
            return False
        if not _matches(self.kwargs, dict(kwargs), leaves, self.by_fields):
            return False
        if _identity_groups(leaves) != self.identity_groups:
            return False
        return all(leaves[leaf] is tensor for leaf, tensor in self.bound_leaves)


def describe_arguments(
    args: Sequence[Any], kwargs: Mapping[str, Any], by_fields: ByFields = NONE_BY_FIELDS
) -> tuple[ArgumentSpec, list[torch.Tensor]]:
    """Describe a call; returns the spec and its tensor leaves in order.

    `by_fields`: classes whose objects are containers.

    Raises CaptureError for a tensor that is not plain, naming where it stands in the call.

    Example:
        spec, leaves = describe_arguments((x, [y, 2]), {"scale": 1.5})
    """
    leaves: list[torch.Tensor] = []
    described_args = TupleArgument(
        tuple(_describe(value, f"argument {i}", leaves, by_fields) for i, value in enumerate(args))
    )
    described_kwargs = DictArgument(
        dict,
        tuple(kwargs),
        tuple(
            _describe(value, f"argument '{key}'", leaves, by_fields)
            for key, value in kwargs.items()
        ),
    )
    groups = _identity_groups(leaves)
    spec = ArgumentSpec(described_args, described_kwargs, len(leaves), groups, by_fields=by_fields)
    return spec, leaves


def tensor_leaves(
    args: Sequence[Any], kwargs: Mapping[str, Any], by_fields: ByFields = NONE_BY_FIELDS
) -> list[torch.Tensor]:
    """Return the tensor leaves of a call in traversal order, without checking them."""
    leaves: list[torch.Tensor] = []

    def note(value: Any) -> None:
        if is_a(value, torch.Tensor):
            leaves.append(value)

    walk_arguments(tuple(args), note, by_fields)
    walk_arguments(dict(kwargs), note, by_fields)
    return leaves


def object_leaves(
    args: Sequence[Any], kwargs: Mapping[str, Any], by_fields: ByFields = NONE_BY_FIELDS
) -> tuple[Any, ...]:
    """Return the leaves of a call that are compared by identity alone.

    What is in them, those of subclasses of containers too, no description of the arguments says.
    """
    found: list[Any] = []

    def visit(value: Any) -> None:
        if is_a(value, torch.Tensor) or items_of(value, by_fields) is not None:
            return
        with contextlib.suppress(CaptureError):
            described = _describe(value, "", [], by_fields)
            if isinstance(described, ObjectArgument):
                found.append(value)

    walk_arguments(tuple(args), visit, by_fields)
    walk_arguments(dict(kwargs), visit, by_fields)
    return tuple(found)


def items_of(value: Any, by_fields: ByFields = NONE_BY_FIELDS) -> Mapping[Any, Any] | None:
    """Return the items of a container by index, key or name; None for a leaf."""
    kind = type(value)
    if _is_sequence(value):
        return dict(enumerate(value))
    if kind is dict or kind is collections.OrderedDict:
        found: Mapping[Any, Any] = value
        return found
    return by_fields.fields_of(value)


def _is_sequence(value: object) -> bool:
    kind = type(value)
    return kind is tuple or kind is list or kind is torch.Size or is_namedtuple_type(kind)


def _is_array(value: object) -> bool:
    return type(value).__module__ == "numpy"


def _describe(value: Any, name: str, leaves: list[torch.Tensor], by_fields: ByFields) -> Argument:
    kind = type(value)
    if is_a(value, torch.Tensor):
        check_tensor(value, name)
        leaves.append(value)
        return TensorArgument(len(leaves) - 1, TensorFacts.of(value))
    if is_one_of(kind, _CONSTANT_TYPES):
        return ConstantArgument(value)
    if _is_sequence(value):
        items = tuple(
            _describe(item, f"{name}[{i}]", leaves, by_fields) for i, item in enumerate(value)
        )
        if kind is tuple:
            return TupleArgument(items)
        return ListArgument(items) if kind is list else NamedTupleArgument(kind, items)
    if kind is dict or kind is collections.OrderedDict:
        if list(dict.__iter__(value)) != list(value):
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_INPUT,
                f"{name} is an OrderedDict of which items were moved",
                hint="pass OrderedDict(it), which has the new order from the start",
            )
        items = tuple(
            _describe(item, f"{name}[{shown(key)}]", leaves, by_fields)
            for key, item in value.items()
        )
        return DictArgument(kind, tuple(value), items)
    if (fields := by_fields.fields_of(value)) is not None:
        items = tuple(
            _describe(item, f"{name}.{field}", leaves, by_fields) for field, item in fields.items()
        )
        return InstanceArgument(kind, tuple(fields), items)
    if is_one_of(kind, EQUALITY_TYPES):
        return EqualArgument(value)
    if is_a(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        what = f"{name} is a symbolic number ({kind.__qualname__})"
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_INPUT, what, hint="pass a plain Python number"
        )
    if _is_array(value):
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_INPUT,
            f"{name} is a NumPy value ({kind.__qualname__})",
            hint="pass torch.from_numpy(value), or a Python number",
        )
    return ObjectArgument(value)


def _matches(spec: Argument, value: Any, leaves: list[torch.Tensor], by_fields: ByFields) -> bool:
    def items_match(items: Sequence[Argument], values: Sequence[Any]) -> bool:
        return len(items) == len(values) and all(
            _matches(item, found, leaves, by_fields)
            for item, found in zip(items, values, strict=True)
        )

    if isinstance(spec, TensorArgument):
        leaves.append(value)
        return spec.facts.matches(value)
    if isinstance(spec, ConstantArgument):
        return spec.matches(value)
    if isinstance(spec, EqualArgument):
        return same_constant(value, spec.value)
    if isinstance(spec, ObjectArgument):
        return value is spec.object
    if isinstance(spec, InstanceArgument):
        fields = by_fields.fields_of(value) if type(value) is spec.type else None
        same = fields is not None and tuple(fields) == spec.names
        return same and items_match(spec.items, tuple((fields or {}).values()))
    if isinstance(spec, DictArgument):
        found: Any = value if type(value) is spec.type else {}
        if type(value) is not spec.type or not same_keys(tuple(found), spec.keys):
            return False
        return items_match(spec.items, tuple(found.values()))
    kinds = {TupleArgument: tuple, ListArgument: list}
    kind = spec.type if isinstance(spec, NamedTupleArgument) else kinds[type(spec)]
    values: Any = value
    return type(value) is kind and items_match(spec.items, values)


def same_keys(a: Sequence[object], b: Sequence[object]) -> bool:
    """Tell whether keys are the same: those of constant types by value, others by identity."""

    def same(x: object, y: object) -> bool:
        return x is y or (is_one_of(type(x), _CONSTANT_TYPES) and same_constant(x, y))

    return len(a) == len(b) and all(map(same, a, b))


def _identity_groups(leaves: Sequence[object]) -> tuple[tuple[int, ...], ...]:
    groups: dict[int, list[int]] = {}
    for index, leaf in enumerate(leaves):
        groups.setdefault(id(leaf), []).append(index)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def containers_in(
    args: Sequence[Any], kwargs: Mapping[str, Any], by_fields: ByFields = NONE_BY_FIELDS
) -> list[Any]:
    """Return the containers among the arguments of a call, but for tuples without items."""
    found: list[Any] = []

    def note(value: Any) -> None:
        if items_of(value, by_fields) is not None and not (type(value) is tuple and not value):
            found.append(value)

    for value in (*args, *kwargs.values()):
        walk_arguments(value, note, by_fields)
    return found


def holds_array(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a value of NumPy is among the arguments."""
    found = False

    def visit(value: Any) -> None:
        nonlocal found
        found = found or _is_array(value)

    walk_arguments(tuple(args), visit)
    walk_arguments(dict(kwargs), visit)
    return found


def walk_arguments(
    value: Any, visit: Callable[[Any], None], by_fields: ByFields = NONE_BY_FIELDS
) -> None:
    """Call `visit` on every container and leaf of an argument tree, containers first."""
    visit(value)
    for item in (items_of(value, by_fields) or {}).values():
        walk_arguments(item, visit, by_fields)
