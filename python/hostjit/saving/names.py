# SPDX-License-Identifier: Apache-2.0
"""Names of the tensors that a callable holds, by which a file has them."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from hostjit import _C
from hostjit.saving.loaded import LoadedFunction

__all__ = ["named_tensors"]


def named_tensors(target: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a callable by name; one tensor may have several names.

    Of a module: as in its state_dict, and tensors among the attributes of modules besides. Of a
    method: those of its object. Of a function: by the names of its closure, defaults and globals,
    then as in a module: "model.weight". What is in lists, tuples and dicts: "weights[0]".
    """
    found: dict[str, torch.Tensor] = {}
    for name, tensor in _of_callable(target):
        found.setdefault(name, tensor)
    return found


def _of_callable(target: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(target, _C.CompiledFunction) and type(target) is _C.CompiledFunction:
        if isinstance(target.owner, LoadedFunction):
            yield from target.owner.parameters.items()
        else:
            yield from _of_callable(target.__wrapped__)
    elif isinstance(target, torch.nn.Module):
        yield from _of_module(target, "")
    elif isinstance(target, types.MethodType):
        yield from _of_callable(target.__self__)
        yield from _of_callable(target.__func__)
    elif isinstance(target, functools.partial):
        yield from _of_callable(target.func)
        yield from _of_value({**dict(enumerate(target.args)), **target.keywords}, "arguments")
    elif isinstance(target, types.FunctionType):
        for name, value in _variables(target):
            yield from _of_value(value, name)
    elif hasattr(target, "__dict__"):
        for name, value in vars(target).items():
            yield from _of_value(value, name)


def _of_module(module: torch.nn.Module, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    prefix = path and f"{path}."
    for kind in (module.named_parameters, module.named_buffers):
        for name, tensor in kind(remove_duplicate=False):
            yield prefix + name, tensor
    for name, part in module.named_modules(remove_duplicate=False):
        for attribute, value in vars(part).items():
            if not attribute.startswith("_") or isinstance(value, torch.Tensor):
                yield from _of_value(value, prefix + (name and f"{name}.") + attribute)


def _of_value(value: Any, path: str, depth: int = 4) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth == 0:
        return
    elif isinstance(value, torch.nn.Module):
        yield from _of_module(value, path)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _of_value(item, f"{path}[{index}]", depth - 1)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _of_value(item, f"{path}[{key!r}]", depth - 1)
    elif isinstance(value, types.FunctionType):
        for name, item in _variables(value):
            yield from _of_value(item, f"{path}.{name}", depth - 1)


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # empty
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            yield name, parameter.default
    for name in _names_in(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
