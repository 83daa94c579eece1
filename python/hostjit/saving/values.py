# SPDX-License-Identifier: Apache-2.0
"""Python values as JSON: what a call is compared with, and constants of results.

None, bools, ints and strings are themselves; others are an object with one key, the kind.
"""

from __future__ import annotations

import collections
import enum
import struct
from collections.abc import Iterable
from typing import Any

import torch

from hostjit import _C

__all__ = ["Classes", "Values", "class_name", "float_from_bits", "float_to_bits"]

_TORCH = {
    "dtype": torch.dtype,
    "layout": torch.layout,
    "memory_format": torch.memory_format,
}
# Those whose making runs nothing but their own code.
_KNOWN = (collections.OrderedDict, torch.Size)
_STRUCT_SEQUENCES = "torch.return_types"


def class_name(kind: type) -> str:
    """Return what a class is called in a file."""
    return f"{kind.__module__}:{kind.__qualname__}"


def float_to_bits(value: float) -> str:
    """Return a float's bits in hexadecimal: NaNs differ from one another."""
    return struct.pack(">d", value).hex()


def float_from_bits(bits: str) -> float:
    """Return the float that `float_to_bits` was given."""
    value: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return value


class Classes:
    """Classes that a file may name. No other is looked up: importing a module runs its code."""

    def __init__(self, classes: Iterable[type]) -> None:
        self._by_name = {class_name(kind): kind for kind in (*_KNOWN, *classes)}

    def find(self, name: str) -> type:
        """Return a class; raises hostjit.Error for one that the caller of load did not name."""
        module, _, member = name.partition(":")
        if module == _STRUCT_SEQUENCES and member in dir(torch.return_types):
            found: type = getattr(torch.return_types, member)
            return found
        if name not in self._by_name:
            raise _C.Error(
                f"it has objects of the class '{name}', which is not among those that it may make: "
                f"import the class, check that you trust it, and give it as classes=[...] of "
                "hostjit.load"
            )
        return self._by_name[name]


class Values:
    """Writes and reads values.

    Attributes:
        classes: that values are read with.
        met: those that were written.
    """

    def __init__(self, classes: Classes | None = None) -> None:
        self.classes = classes or Classes(())
        self.met: set[type] = set()

    def class_to_json(self, kind: type) -> str:
        """Return the name of a class, which can be found by it."""
        self.met.add(kind)
        return class_name(kind)

    def to_json(self, value: Any) -> Any:
        """Raises hostjit.Error for a value that means something in this process only."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return {"float": float_to_bits(value)}
        if kind is complex:
            return {"complex": [float_to_bits(value.real), float_to_bits(value.imag)]}
        if kind is bytes:
            return {"bytes": value.hex()}
        if kind in (range, slice):
            parts = [value.start, value.stop, value.step]
            return {kind.__name__: [self.to_json(part) for part in parts]}
        if kind is torch.device:
            return {"device": str(value)}
        if kind in _TORCH.values():
            return {kind.__name__: str(value).removeprefix("torch.")}
        if value is ...:
            return {"ellipsis": True}
        if kind in (tuple, torch.Size):
            name = "tuple" if kind is tuple else "size"
            return {name: [self.to_json(item) for item in value]}
        if isinstance(value, enum.Enum):
            return {"enum": [self.class_to_json(kind), value.name]}
        if isinstance(value, type):
            return {"class": self.class_to_json(value)}
        raise _C.Error(f"a {kind.__qualname__} means something in this process only")

    def from_json(self, described: Any) -> Any:
        """Return the value; raises hostjit.Error for a class that may not be used."""
        if not isinstance(described, dict):
            return described
        ((kind, content),) = described.items()
        if kind == "float":
            return float_from_bits(content)
        if kind == "complex":
            return complex(float_from_bits(content[0]), float_from_bits(content[1]))
        if kind == "bytes":
            return bytes.fromhex(content)
        if kind in ("range", "slice"):
            make = range if kind == "range" else slice
            return make(*(self.from_json(part) for part in content))
        if kind == "device":
            return torch.device(content)
        if kind in _TORCH:
            found = getattr(torch, content)
            if not isinstance(found, _TORCH[kind]):
                raise ValueError(f"torch.{content} is no {kind}")
            return found
        if kind == "ellipsis":
            return ...
        if kind in ("tuple", "size"):
            items = tuple(self.from_json(item) for item in content)
            return items if kind == "tuple" else torch.Size(items)
        if kind == "enum":
            return self.classes.find(content[0])[content[1]]  # type: ignore[index]
        if kind == "class":
            return self.classes.find(content)
        raise ValueError(f"unknown kind of value '{kind}'")
