# SPDX-License-Identifier: Apache-2.0
"""Whether statements of a recorded call do nothing but compute, given what their variables have."""

from __future__ import annotations

import builtins
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from hostjit.bytecode.computing import Chain, Facts, is_of_tensors
from hostjit.bytecode.stored_attributes import StoredAttribute
from hostjit.capturing.instances import instance_dict, is_one_of
from hostjit.capturing.module_fields import MODULE_STATE, has_plain_call
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
_LAYERS = "torch.nn.modules."
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
    for each in facts.stores_in_place:
        if not is_number((instance_dict(local[each.variable]) or {}).get(each.name)):
            return False
    for each in facts.loads:
        if each.name not in (instance_dict(local[each.variable]) or {}):
            return False  # its class may have one, or reading it raises
    owners = [(id(local[each.variable]), each.name) for each in facts.stores]
    if len({*owners}) < len(owners):
        return False
    for each in facts.stores:
        if not _may_assign(local[each.variable], each.name):
            return False
        if any(_may_be_of_other(chain, each, local, function) for chain in facts.chains):
            return False
    return all(_may_ask(chain, local, function) for chain in facts.chains)


def _may_be_of_other(
    chain: Chain, stored: StoredAttribute, local: Mapping[str, Any], body: types.FunctionType
) -> bool:
    """Whether code asks for the attribute that it assigns, maybe, on another way."""
    place = (not chain.is_global, chain.name, *chain.attributes[:1])
    if stored.name not in chain.attributes or place == (True, stored.variable, stored.name):
        return False
    if not chain.is_global:
        return chain.name in local and not _are_plain(local[chain.name])
    found = body.__globals__.get(chain.name)
    return not (_is_module(found) or _are_plain(found))


def _may_assign(owner: Any, name: str) -> bool:
    """Whether to assign an attribute of an object puts the value into its dict alone."""
    kind: Any = type(owner)
    # What these have may be more to operators, and to calls of them.
    if isinstance(owner, torch.Tensor) or kind.__module__.startswith(_LAYERS):
        return False
    if kind.__setattr__ not in (object.__setattr__, nn.Module.__setattr__):
        return False
    own = instance_dict(owner)
    if type(own) is not dict or kind.__getattribute__ is not object.__getattribute__:
        return False
    if isinstance(owner, nn.Module) and any(name in own[each] for each in MODULE_STATE):
        return False
    bases = (vars(base) for base in kind.__mro__)
    of_class = next((as_defined(base[name]) for base in bases if name in base), None)
    return not (hasattr(type(of_class), "__get__") or hasattr(type(of_class), "__set__"))


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
    return _are_plain(value) or _is_operator(value) or _is_layer(value)


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
    if name in own or any(name in base for base in map(vars, kind.__mro__)):
        return own.get(name, of_class)
    if isinstance(value, nn.Module) and kind.__getattr__ is nn.Module.__getattr__:
        for found in map(own.__getitem__, MODULE_STATE):
            if name in found:
                return found[name]
    raise AttributeError(name)  # which a method of the class may make


def _is_operator(value: Any) -> bool:
    """Whether something is a function of PyTorch's that computes, and no more."""
    if not isinstance(value, (types.BuiltinFunctionType, types.FunctionType)):
        return False
    name = value.__name__
    return is_of_tensors(name) and any(vars(each).get(name) is value for each in _MODULES)


def _is_layer(value: Any) -> bool:
    """Whether something is a module of PyTorch's, of such, of which calls do what operators do."""
    if not has_plain_call(value) or not type(value).__module__.startswith(_LAYERS):
        return False
    return all(map(_is_layer, value.children()))


def _are_plain(value: Any, most: int = _MOST_ITEMS) -> bool:
    """Whether something is a tensor or a number, or a container of such."""
    if is_one_of(type(value), (tuple, list)):
        return len(value) <= most and all(_are_plain(item, most // 8) for item in value)
    return is_one_of(type(value), (*TENSORS, *_PLAIN))
