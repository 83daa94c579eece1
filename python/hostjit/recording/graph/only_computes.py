# SPDX-License-Identifier: Apache-2.0
"""Whether statements of a recorded call do nothing but compute, given what their variables have."""

from __future__ import annotations

import builtins
import types
from collections.abc import Mapping
from typing import Any

import torch

from hostjit.bytecode.computing import Chain, Facts, is_of_tensors
from hostjit.capturing.instances import instance_dict, is_one_of
from hostjit.recording.graph.read_numbers import TENSORS, ReadNumber
from hostjit.recording.graph.selecting import is_number
from hostjit.recording.reach.attributes import as_defined

__all__ = ["only_computes"]

_MODULES = (torch, torch.linalg, torch.special, torch.nn.functional)
_FUNCTIONS = frozenset({"float", "int", "abs", "min", "max", "len"})
_PLAIN = (
    *(bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.Size),
    ReadNumber,
)
# So much is looked at of what is in containers.
_MOST_ITEMS = 64


def only_computes(function: types.FunctionType, local: Mapping[str, Any], facts: Facts) -> bool:
    """Tell whether statements do nothing but compute.

    Args:
        function: whose they are.
        local: its variables, which they take.
        facts: of the statements.
    """
    if any(name in local and not is_number(local[name]) for name in facts.in_place):
        return False
    return all(_may_ask(chain, local, function) for chain in facts.chains)


def _may_ask(chain: Chain, local: Mapping[str, Any], body: types.FunctionType) -> bool:
    """Whether code does nothing but compute with what it asks for."""
    if chain.is_global:
        if chain.name not in body.__globals__:
            is_pythons = hasattr(builtins, chain.name) and not chain.attributes
            return is_pythons and chain.name in _FUNCTIONS
        value = body.__globals__[chain.name]
    elif chain.name in local:
        value = local[chain.name]
    else:
        return True  # the statement makes it, of what is plain
    for name in chain.attributes:
        if _are_plain(value):
            return is_of_tensors(name)
        try:
            value = vars(value)[name] if _is_module(value) else _attribute(value, name)
        except (AttributeError, KeyError):
            return False
    return _are_plain(value) or _is_operator(value)


def _is_module(value: Any) -> bool:
    return any(value is module for module in _MODULES)


def _attribute(value: Any, name: str) -> Any:
    """What an object has by a name, where no code runs to find it; raises AttributeError."""
    kind: Any = type(value)
    if kind.__getattribute__ is not object.__getattribute__:
        raise AttributeError(name)
    bases = (vars(base) for base in kind.__mro__)
    of_class = next((as_defined(base[name]) for base in bases if name in base), None)
    if hasattr(type(of_class), "__get__"):
        raise AttributeError(name)
    own = instance_dict(value) or {}
    if name not in own and not any(name in base for base in map(vars, kind.__mro__)):
        raise AttributeError(name)  # which a method of the class may make
    return own.get(name, of_class)


def _is_operator(value: Any) -> bool:
    """Whether something is a function of PyTorch's that computes, and no more."""
    if not isinstance(value, (types.BuiltinFunctionType, types.FunctionType)):
        return False
    name = value.__name__
    return is_of_tensors(name) and any(vars(each).get(name) is value for each in _MODULES)


def _are_plain(value: Any, most: int = _MOST_ITEMS) -> bool:
    """Whether something is a tensor or a number, or a container of such."""
    if is_one_of(type(value), (tuple, list)):
        return len(value) <= most and all(_are_plain(item, most // 8) for item in value)
    return is_one_of(type(value), (*TENSORS, *_PLAIN))
