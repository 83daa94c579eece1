# SPDX-License-Identifier: Apache-2.0
"""`hostjit.Dim`: a number that calls bind, and that programs are compiled for any value of."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.instances import is_namedtuple_type

__all__ = ["BoundDim", "Dim", "register", "with_names", "without_dims"]

# Beyond, products of two of them may not fit into 64 bits.
_MOST = 1 << 30


class Dim:
    """A length, a position or another int that differs from call to call, within a range.

    `n(5)`, or `n.bind(5)`, is an int that says so where it is an argument of a captured or compiled
    function: one program serves all values from the first call on.

    Args:
        name: for messages.
        min: the least value that it may have.
        max: the greatest one; at most 2**30.

    Raises:
        hostjit.Error: at `n(value)`, for a value out of range; for a range without values.

    Example:
        n = hostjit.Dim("n", 1, 512)

        @hostjit.capture
        def attend(q, keys, length):
            return q @ keys[:length].T

        for length in range(1, 512):
            y = attend(q, keys, n(length))
    """

    def __init__(self, name: str, min: int = 0, max: int = _MOST) -> None:  # noqa: A002
        if not -_MOST <= min <= max <= _MOST:
            raise _C.Error(
                f"Dim '{name}' has the range {min} to {max}, expected one in {-_MOST} to {_MOST}"
            )
        self.name = name
        self.min = min
        self.max = max
        self._bound: dict[int, BoundDim] = {}

    def __call__(self, value: int) -> BoundDim:
        """Return the int `value` as one of this Dim; raises hostjit.Error if it is out of range."""
        bound = self._bound.get(value)
        return bound if bound is not None else self._bind(value)

    bind = __call__

    def __repr__(self) -> str:
        return f"hostjit.Dim({self.name!r}, {self.min}, {self.max})"

    def __reduce__(self) -> Any:
        return Dim, (self.name, self.min, self.max)

    def _bind(self, value: int) -> BoundDim:
        if not isinstance(value, int):
            raise TypeError(f"Dim '{self.name}' is given a {type(value).__qualname__}, not an int")
        if not self.min <= value <= self.max:
            raise _C.Error(f"Dim '{self.name}' is {value}, expected {self.min} to {self.max}")
        bound = BoundDim(value)
        bound.dim = self
        return self._bound.setdefault(int(value), bound)


class BoundDim(int):
    """A value of a Dim: what `Dim.bind` returns.

    Attributes:
        dim: the Dim.
    """

    dim: Dim

    def __repr__(self) -> str:
        return f"{self.dim.name}={int(self)}"

    def __reduce__(self) -> Any:
        return Dim.bind, (self.dim, int(self))


def register() -> None:
    """Let calls bring a BoundDim wherever they may bring an int."""
    _C.register_bound_dim(BoundDim)


def without_dims(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], dict[int, Dim]]:
    """Return the arguments of a call with plain ints for bound Dims, and the Dims.

    The Dims by their places among the numbers of the arguments, as `number_leaves` counts them.
    """
    plain = _Plain()
    plain_args = tuple(plain.of(value) for value in args)
    plain_kwargs = {name: plain.of(value) for name, value in kwargs.items()}
    return plain_args, plain_kwargs, plain.found


def with_names(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with what names a Dim in the place of its value."""
    named = _Plain(by_name=True)
    return tuple(named.of(value) for value in args), {n: named.of(v) for n, v in kwargs.items()}


class _Plain:
    """Copies of values with plain ints for bound Dims; the values themselves where there is none.

    Attributes:
        found: the Dims so far.
    """

    def __init__(self, *, by_name: bool = False) -> None:
        self.found: dict[int, Dim] = {}
        self._by_name = by_name
        self._numbers = 0
        self._entered: set[int] = set()  # containers, which may hold themselves

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind is int or kind is float or kind is BoundDim:
            if kind is BoundDim:
                self.found[self._numbers] = value.dim
                value = f"Dim {value.dim.name}" if self._by_name else int(value)
            self._numbers += 1
            return value
        if id(value) in self._entered:
            return value
        self._entered.add(id(value))
        try:
            return self._of_container(value, kind)
        finally:
            self._entered.discard(id(value))

    def _of_container(self, value: Any, kind: type) -> Any:
        before = len(self.found)
        if kind is dict or kind is collections.OrderedDict:
            items = {key: self.of(item) for key, item in value.items()}
            return value if len(self.found) == before else kind(items)
        if kind is tuple or kind is list or kind is torch.Size or is_namedtuple_type(kind):
            parts = [self.of(item) for item in value]
            if len(self.found) == before:
                return value
            return parts if kind is list else tuple.__new__(kind, parts)
        return value
