# SPDX-License-Identifier: Apache-2.0
"""Says in one line how a call differs from the one that was recorded."""

from __future__ import annotations

import dataclasses
import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.arguments import (
    Argument,
    ConstantArgument,
    DictArgument,
    EqualArgument,
    InstanceArgument,
    ListArgument,
    NamedTupleArgument,
    ObjectArgument,
    TensorArgument,
    TupleArgument,
    describe_arguments,
    same_keys,
)
from hostjit.capturing.constants import same_constant
from hostjit.capturing.instances import is_a, shown
from hostjit.capturing.tensors import TensorFacts
from hostjit.capturing.thread_state import ThreadState

__all__ = [
    "Signature",
    "difference_of_facts",
    "difference_of_gradient",
    "difference_of_modes",
    "named_arguments",
    "tensor_name",
]

_FACTS = ("dtype", "device", "sizes", "strides", "requires_grad", "type", "layout", "key_set")
_CONTAINERS = (TupleArgument, ListArgument, NamedTupleArgument, DictArgument)


def named_arguments(
    target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by the names of the parameters, in their order."""
    function = target.forward if isinstance(target, torch.nn.Module) else target
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {**{f"argument {i}": value for i, value in enumerate(args)}, **kwargs}
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found.update({f"{name}[{index}]": item for index, item in enumerate(value)})
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found.update(dict(sorted(value.items())))
        else:
            found[name] = value
    return found


@dataclasses.dataclass(frozen=True)
class _WeakArgument:
    """The very object, which is not kept alive."""

    reference: weakref.ref[Any]
    type: type


def _let_go(argument: Any) -> Any:
    """Return what is known of an argument without the objects that are held weakly."""
    if isinstance(argument, ObjectArgument) and _C.is_held_weakly(argument.object):
        return _WeakArgument(weakref.ref(argument.object), type(argument.object))
    if isinstance(argument, _CONTAINERS):
        return dataclasses.replace(argument, items=tuple(map(_let_go, argument.items)))
    return argument


class Signature:
    """What the arguments of a recorded call looked like, by name."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        spec, _ = describe_arguments((), arguments)
        self._identity_groups = spec.identity_groups
        items = map(_let_go, spec.kwargs.items)
        self._arguments = dict(zip(spec.kwargs.keys, items, strict=True))

    def difference(self, arguments: Mapping[str, Any]) -> str:
        """Say how a call differs; "" where it does not."""
        spec, _ = describe_arguments((), arguments)
        expected = self._arguments
        found = dict(zip(spec.kwargs.keys, map(_let_go, spec.kwargs.items), strict=True))
        for name in expected:
            if name not in found:
                return f"argument '{name}' is missing, which the recorded call had"
        for name, item in found.items():
            if name not in expected:
                return f"argument '{name}' was not given in the recorded call"
            text = _difference(f"argument '{name}'", expected[name], item)
            if text:
                return text
        if spec.identity_groups != self._identity_groups:
            return (
                f"which arguments are one tensor: expected {self._identity_groups or 'none'}, "
                f"found {spec.identity_groups or 'none'} (tensors counted from 0)"
            )
        return ""


def difference_of_facts(path: str, expected: TensorFacts, found: TensorFacts) -> str:
    """Say how what is known of a tensor differs; "" where it does not."""
    for fact in _FACTS:
        was, now = getattr(expected, fact), getattr(found, fact)
        if was != now:
            return f"{path}: {fact} expected {_short(was)}, found {_short(now)}"
    return ""


def difference_of_gradient(path: str, has: bool) -> str:
    """Say that there is a gradient where there was none, or the other way around."""
    was, now = ("a tensor", "None") if has else ("None", "a tensor")
    return f"{path}: .grad expected {was}, found {now}"


def difference_of_modes(expected: ThreadState, found: ThreadState) -> str:
    """Say which mode of PyTorch differs; "" where none does."""
    for field in dataclasses.fields(ThreadState):
        was, now = getattr(expected, field.name), getattr(found, field.name)
        if was != now:
            return f"the mode '{field.name}': expected {was}, found {now}"
    return ""


def tensor_name(index: int, leaves: Sequence[torch.Tensor], arguments: Mapping[str, Any]) -> str:
    """Say which argument a tensor leaf is."""

    def find(value: Any, path: str) -> str:
        if value is leaves[index]:
            return path
        if is_a(value, dict):
            pairs: Iterable[tuple[Any, Any]] = value.items()
        elif is_a(value, (tuple, list)):
            pairs = enumerate(value)
        else:
            return ""
        return next(filter(None, (find(item, f"{path}[{shown(key)}]") for key, item in pairs)), "")

    found = (find(value, f"argument '{name}'") for name, value in arguments.items())
    return next(filter(None, found), f"tensor {index} of the arguments")


def _difference(
    path: str, expected: Argument | _WeakArgument, found: Argument | _WeakArgument
) -> str:
    if isinstance(expected, TensorArgument) and isinstance(found, TensorArgument):
        return difference_of_facts(path, expected.facts, found.facts)
    if type(expected) is not type(found):
        return f"{path}: expected {_kind(expected)}, found {_kind(found)}"
    if isinstance(expected, _CONTAINERS) and isinstance(found, _CONTAINERS):
        return _difference_of_items(path, expected, found)
    if isinstance(expected, ConstantArgument) and isinstance(found, ConstantArgument):
        same = expected.matches(found.value)
        return "" if same else f"{path}: expected {expected.value!r}, found {found.value!r}"
    if isinstance(expected, ObjectArgument) and isinstance(found, ObjectArgument):
        same = expected.object is found.object
        return "" if same else f"{path}: expected the very object of the recorded call"
    if isinstance(expected, _WeakArgument) and isinstance(found, _WeakArgument):
        same = expected.reference() is found.reference()
        return "" if same else f"{path}: expected the very object of the recorded call"
    if isinstance(expected, EqualArgument) and isinstance(found, EqualArgument):
        same = same_constant(expected.value, found.value)
        return "" if same else f"{path}: expected {expected.value!r}, found {found.value!r}"
    return ""


def _difference_of_items(path: str, expected: Any, found: Any) -> str:
    if isinstance(expected, DictArgument) and not same_keys(expected.keys, found.keys):
        was, now = ([shown(key) for key in keys] for keys in (expected.keys, found.keys))
        return f"{path}: keys expected [{', '.join(was)}], found [{', '.join(now)}]"
    if isinstance(expected, NamedTupleArgument) and expected.type is not found.type:
        return f"{path}: expected {_kind(expected)}, found {_kind(found)}"
    if len(expected.items) != len(found.items):
        return f"{path}: expected {len(expected.items)} items, found {len(found.items)}"
    keys = expected.keys if isinstance(expected, DictArgument) else range(len(expected.items))
    for key, was, now in zip(keys, expected.items, found.items, strict=True):
        text = _difference(f"{path}[{shown(key)}]", was, now)
        if text:
            return text
    return ""


def _kind(argument: Argument | _WeakArgument) -> str:
    match argument:
        case TensorArgument():
            return "a tensor"
        case ConstantArgument(value) | EqualArgument(value):
            return f"{value!r}"
        case TupleArgument():
            return "a tuple"
        case ListArgument():
            return "a list"
        case NamedTupleArgument(kind) | DictArgument(kind) | InstanceArgument(kind):
            return f"a {kind.__qualname__}"
        case _WeakArgument(_, kind):
            return f"a {kind.__qualname__}"
    return f"a {type(argument.object).__qualname__}"


def _short(value: Any) -> str:
    return list(value).__repr__() if isinstance(value, tuple) else str(value)
