# SPDX-License-Identifier: Apache-2.0
"""How a result is rebuilt, as JSON."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.instances import new_namedtuple, new_object
from hostjit.saving.tensors import TensorWriter
from hostjit.saving.values import Values

__all__ = ["result_from_json", "result_to_json"]

_STRUCT_SEQUENCES = "torch.return_types"


def result_to_json(described: Any, tensors: TensorWriter, values: Values) -> list[Any]:
    """Write the nested tuples that `_C.Specialization` takes as `output`.

    Raises hostjit.Error for an object that is returned as such and means something here only.
    """
    from hostjit.recording.replays.checks import assign_gradients

    def write(node: Any) -> list[Any]:
        match node:
            case ("output" | "number" | "argument" as kind, index):
                return [kind, index]
            case ("object", value):
                return _object_to_json(value)
            case ("tuple" | "list" as kind, nodes):
                return [kind, [write(child) for child in nodes]]
            case ("dict", keys, nodes):
                written = [values.to_json(key) for key in keys]
                return ["dict", written, [write(child) for child in nodes]]
            case ("view", *geometry, nodes):
                return ["view", geometry, [write(child) for child in nodes]]
            case ("call", maker, nodes) if maker is assign_gradients:
                return ["assign", [write(child) for child in nodes]]
            case ("assign", _, _):
                raise _C.Error("its calls change what objects of this process keep")
            case ("item", nodes):
                return ["item", [write(child) for child in nodes]]
            case ("call", maker, nodes):
                return ["make", *_maker_to_json(maker, values), [write(child) for child in nodes]]
        raise AssertionError(f"unknown result {node[0]!r}")

    def _object_to_json(value: Any) -> list[Any]:
        if isinstance(value, torch.Tensor):
            return ["tensor", tensors.add(value)]
        if type(value) is tuple:  # may hold tensors; whether it is a new one is not seen
            return ["tuple", [_object_to_json(item) for item in value]]
        try:
            return ["value", values.to_json(value)]
        except _C.Error as error:
            raise _C.Error(f"a result has an object that was there before: {error}") from None

    return write(described)


def _maker_to_json(maker: Any, values: Values) -> list[Any]:
    if isinstance(maker, functools.partial):
        kind = maker.args[0]
        if maker.func is new_namedtuple:
            return ["namedtuple", values.class_to_json(kind), []]
        if maker.func is new_object:
            return ["object", values.class_to_json(kind), list(maker.args[1])]
    if isinstance(maker, type) and (
        maker.__module__ == _STRUCT_SEQUENCES or issubclass(maker, dict)
    ):
        return ["call", values.class_to_json(maker), []]
    raise _C.Error(f"a result is made by {maker!r}, which is no class of values")


def result_from_json(
    described: list[Any], tensors: Sequence[torch.Tensor], values: Values
) -> tuple[Any, ...]:
    """Return the nested tuples that `_C.Specialization` takes as `output`."""

    def read(node: list[Any]) -> tuple[Any, ...]:
        match node:
            case ["output" | "number" | "argument" as kind, index]:
                return (kind, index)
            case ["tensor", number]:
                return ("object", tensors[number])
            case ["value", content]:
                return ("object", values.from_json(content))
            case ["tuple" | "list" as kind, nodes]:
                return (kind, [read(child) for child in nodes])
            case ["dict", keys, nodes]:
                made = tuple(values.from_json(key) for key in keys)
                return ("dict", made, [read(child) for child in nodes])
            case ["view", geometry, nodes]:
                return ("view", *geometry, [read(child) for child in nodes])
            case ["assign", [result, *pairs]]:
                if any(owner[0] not in ("argument", "tensor") for owner in pairs[::2]):
                    raise ValueError("gradients are assigned to what is no tensor")
                from hostjit.recording.replays.checks import assign_gradients

                return ("call", assign_gradients, [read(child) for child in (result, *pairs)])
            case ["item", nodes]:
                return ("item", [read(child) for child in nodes])
            case ["make", how, name, names, nodes]:
                maker = _maker_from_json(how, values.classes.find(name), names)
                return ("call", maker, [read(child) for child in nodes])
        raise ValueError(f"unknown kind of result {node[0]!r}")

    return read(described)


def _maker_from_json(how: str, kind: type, names: list[str]) -> Any:
    if how == "namedtuple" and issubclass(kind, tuple):
        return functools.partial(new_namedtuple, kind)
    if how == "object":
        return functools.partial(new_object, kind, tuple(names))
    if how == "call":
        return kind
    raise ValueError(f"unknown way {how!r} to make a {kind.__qualname__}")
