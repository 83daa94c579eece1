# SPDX-License-Identifier: Apache-2.0
"""How results are rebuilt, as `_C.Specialization` takes it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.instances import new_namedtuple, new_object
from hostjit.capturing.results import outputs as capture_outputs
from hostjit.capturing.results import rebuilding
from hostjit.compiling.number_values import NumberValues

__all__ = ["describe_output"]


def describe_output(
    output: capture_outputs.Output, made: NumberValues | None = None
) -> tuple[Any, ...]:
    """Return the nested tuples that `_C.Specialization` takes.

    `made`: the values that calls make besides tensors.
    """

    def describe(items: Sequence[capture_outputs.Output]) -> list[tuple[Any, ...]]:
        return [describe_output(item, made) for item in items]

    def number(value: Any) -> Any:
        if isinstance(value, (int, bool)):
            return value
        if isinstance(value, tuple):
            return tuple(map(number, value))
        assert made is not None
        return (made.position(value),)

    match output:
        case capture_outputs.GraphOutput(index):
            return ("output", index)
        case capture_outputs.NumberOutput(index):
            assert made is not None
            return ("number", made.number(index))
        case capture_outputs.ItemOutput(items):
            return ("item", describe(items))
        case capture_outputs.ArrayOutput(items):
            return ("call", torch.Tensor.numpy, describe(items))
        case capture_outputs.LeafOutput(items):
            if not isinstance(items[0], capture_outputs.GraphOutput):
                what = "a new tensor that collects gradients is one that the call was given"
                raise CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, what)
            return ("call", torch.Tensor.requires_grad_, describe(items))
        case capture_outputs.HandedOnOutput(items):
            return ("call", rebuilding.handed_on, describe(items))
        case capture_outputs.CollectedOutput(items, columns, form):
            collect = functools.partial(rebuilding.collected, columns, form)
            return ("call", collect, describe(items))
        case capture_outputs.SharedOutput(items, positions, numbers):
            share = functools.partial(rebuilding.with_shared, positions, numbers)
            return ("call", share, describe(items))
        case capture_outputs.JoinedOutput(items, form):
            make = functools.partial(rebuilding.joined, form)
            return ("call", make, describe(items))
        case capture_outputs.ArgumentOutput(leaf):
            return ("argument", leaf)
        case capture_outputs.BoundOutput():
            return ("object", output.tensor)
        case capture_outputs.ConstantOutput():
            return ("object", output.value)
        case capture_outputs.TupleOutput(items):
            return ("tuple", describe(items))
        case capture_outputs.ListOutput(items):
            return ("list", describe(items))
        case capture_outputs.DictOutput(kind, keys, items):
            description = ("dict", keys, describe(items))
            return description if kind is dict else ("call", kind, [description])
        case capture_outputs.NamedTupleOutput(kind, items, struct_sequence):
            children = [("tuple", describe(items))]
            if struct_sequence:
                return ("call", kind, children)
            return ("call", functools.partial(new_namedtuple, kind), children)
        case capture_outputs.ObjectOutput(kind, names, items):
            make = functools.partial(new_object, kind, tuple(names))
            return ("call", make, describe(items))
        case capture_outputs.ViewOutput(items):
            geometry = (output.sizes, output.strides, output.offset, int(output.made))
            return ("view", *number((*geometry, output.base_strides)), describe(items))
    raise AssertionError(f"unknown output {output!r}")
