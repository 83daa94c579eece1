# SPDX-License-Identifier: Apache-2.0
"""Names of what a callable holds, by which a file has it: tensors, numbers and optimizers."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.instances import is_a
from hostjit.saving.loaded import LoadedFunction

__all__ = ["Named", "Place", "named", "named_tensors"]

# Where a number is: a dict and its key, or a cell and None.
Place = tuple[Any, Any]
_Found = Iterator[tuple[str, Any, Place | None]]

_DEPTH = 4
_NO_STATE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)


class Named:
    """What is found in an object, by name; one thing may have several names.

    Attributes:
        tensors: all of them.
        numbers: ints, floats and tuples of floats in dicts and cells, where calls find them.
        optimizers: all of them.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.numbers: dict[str, Place] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}


def named(target: Any) -> Named:
    """Return what a callable, a module, an optimizer or a dict holds.

    Of a module: as in its state_dict, and attributes of modules besides. Of a method: what its
    object has. Of a function: by the names of its closure, defaults and globals, then as in a
    module: "model.weight". What is in lists, tuples and dicts: "weights[0]". Of an optimizer:
    "param_groups[0]['lr']", and with the numbers that its state_dict has, "state[3]['exp_avg']".
    Of a dict of such: its keys are the first names.
    """
    found = Named()
    walk = _Walk()
    is_dict = isinstance(target, Mapping)
    for name, value, place in walk.of_dict(target) if is_dict else walk.of_callable(target):
        if isinstance(value, torch.Tensor):
            found.tensors.setdefault(name, value)
        elif isinstance(value, torch.optim.Optimizer):
            found.optimizers.setdefault(name, value)
        elif place is not None:
            found.numbers.setdefault(name, place)
    return found


def named_tensors(target: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of an object by name."""
    return named(target).tensors


class _Walk:
    """Yields names, what has them, and where that is."""

    def __init__(self) -> None:
        self._seen: set[int] = set()  # instances of classes of users: these may refer to each other

    def of_dict(self, values: Mapping[str, Any]) -> _Found:
        for key, value in values.items():
            yield from self.of_value(value, str(key), _item(values, key))
            if isinstance(value, Mapping):  # a state_dict
                for name, item in value.items():
                    yield from self.of_value(item, f"{key}.{name}", _item(value, name))

    def of_callable(self, target: Any) -> _Found:
        if is_a(target, _C.CompiledFunction):
            if isinstance(target.owner, LoadedFunction):
                yield from ((name, x, None) for name, x in target.owner.parameters.items())
                yield from ((name, None, place) for name, place in target.owner.places.items())
                yield from ((name, x, None) for name, x in target.owner.optimizers.items())
            else:
                yield from self.of_callable(target.__wrapped__)
        elif isinstance(target, torch.nn.Module):
            yield from self.of_module(target, "")
        elif isinstance(target, torch.optim.Optimizer):
            yield from self.of_optimizer(target, "")
        elif isinstance(target, types.MethodType):
            yield from self.of_callable(target.__self__)
            if not isinstance(target.__self__, torch.optim.Optimizer):
                yield from self.of_callable(target.__func__)
        elif isinstance(target, functools.partial):
            yield from self.of_callable(target.func)
            yield from self.of_value(
                {**dict(enumerate(target.args)), **target.keywords}, "arguments"
            )
        elif isinstance(target, types.FunctionType):
            for name, value, place in _variables(target):
                yield from self.of_value(value, name, place)
        elif hasattr(target, "__dict__"):
            for name, value in vars(target).items():
                yield from self.of_value(value, name, (vars(target), name))

    def of_module(self, module: torch.nn.Module, path: str, depth: int = _DEPTH) -> _Found:
        prefix = path and f"{path}."
        for kind in (module.named_parameters, module.named_buffers):
            for name, tensor in kind(remove_duplicate=False):
                yield prefix + name, tensor, None
        for name, part in module.named_modules(remove_duplicate=False):
            for attribute, value in vars(part).items():
                if not attribute.startswith("_") or isinstance(value, torch.Tensor):
                    place = (vars(part), attribute)
                    inside = prefix + (name and f"{name}.") + attribute
                    yield from self.of_value(value, inside, place, depth)

    def of_optimizer(self, optimizer: torch.optim.Optimizer, path: str) -> _Found:
        yield path, optimizer, None
        prefix = path and f"{path}."
        params: list[torch.Tensor] = []
        for index, group in enumerate(optimizer.param_groups):
            name = f"{prefix}param_groups[{index}]"
            for position, tensor in enumerate(group["params"]):
                yield f"{name}['params'][{position}]", tensor, None
            params += group["params"]
            for key in group:
                if key != "params":
                    yield from self.of_value(group[key], f"{name}[{key!r}]", (group, key))
        for index, tensor in enumerate(params):
            for key, value in optimizer.state.get(tensor, {}).items():
                yield from self.of_value(value, f"{prefix}state[{index}][{key!r}]")

    def of_value(
        self, value: Any, path: str, place: Place | None = None, depth: int = _DEPTH
    ) -> _Found:
        if isinstance(value, torch.Tensor) or _is_number(value):
            yield path, value, place
        elif depth == 0:
            return
        elif isinstance(value, torch.nn.Module):
            yield from self.of_module(value, path, depth - 1)
        elif isinstance(value, torch.optim.Optimizer):
            yield from self.of_optimizer(value, path)
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                yield from self.of_value(item, f"{path}[{index}]", None, depth - 1)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield from self.of_value(item, f"{path}[{key!r}]", _item(value, key), depth - 1)
        elif isinstance(value, types.FunctionType):
            for name, item, found in _variables(value):
                yield from self.of_value(item, f"{path}.{name}", found, depth - 1)
        elif is_a(value, _C.CompiledFunction):
            if not isinstance(value.owner, LoadedFunction):
                yield from self.of_value(value.__wrapped__, path, None, depth - 1)
        elif hasattr(value, "__dict__") and not isinstance(value, _NO_STATE):
            if id(value) in self._seen:
                return
            self._seen.add(id(value))
            for name, item in vars(value).items():
                if not name.startswith("_") or isinstance(item, torch.Tensor):
                    yield from self.of_value(item, f"{path}.{name}", (vars(value), name), depth - 1)


def _is_number(value: Any) -> bool:
    if type(value) is tuple:
        return bool(value) and all(type(item) is float for item in value)
    return type(value) in (int, float)


def _item(values: Any, key: Any) -> Place | None:
    return (values, key) if isinstance(values, dict) else None


def _variables(function: types.FunctionType) -> _Found:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            yield name, cell.cell_contents, (cell, None)
        except ValueError:
            continue  # empty
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            yield name, parameter.default, None
    for name in _names_in(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name], (function.__globals__, name)


def _names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the globals that code reads; `co_names` has those of attributes, too."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
