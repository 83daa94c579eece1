# SPDX-License-Identifier: Apache-2.0
"""Modules among the arguments of calls, of which calls may bring others: what is compared of them.

`step(model, x)` for many models, or a compiled `forward` of a class of layers: a program that was
made for one module answers for others that have the same in them. Their parameters and buffers are
arguments as the tensors beside them are, and so are the modules in them.
"""

from __future__ import annotations

import abc
import types
from collections.abc import Callable, Container
from typing import Any, TypeGuard

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.module import _has_any_global_hook

from hostjit import _C
from hostjit.capturing.instances import HEAP_TYPE, fields_of, instance_dict, is_a, slot_names

__all__ = [
    "MODULE_FIELDS",
    "MODULE_HOOKS",
    "MODULE_STATE",
    "MOST_LEVELS",
    "UNREAD",
    "fields_of_any",
    "has_plain_call",
    "is_plain",
]

# The hooks that a module's call runs, or hangs into the graph of its results.
MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Where `Module.__getattr__` looks, in its order.
MODULE_STATE = ("_parameters", "_buffers", "_modules")
# How these are called, by their ids.
_ABOUT_HOOKS = (
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
)
UNREAD = (
    "_non_persistent_buffers_set",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_flat_weight_refs",  # of recurrent networks: weak references to their parameters
)
"""Fields that say how a module is saved, not what it computes: no call compares them."""
_EMPTY = (*MODULE_HOOKS, *_ABOUT_HOOKS)
_NOT_COMPARED = frozenset({*_EMPTY, *UNREAD})
MOST_LEVELS = 64
"""Of objects and containers in one another that are compared: each costs stack."""
MODULE_FIELDS = frozenset(vars(nn.Module()))
"""Those that every module has."""
# They are more than their fields.
_OTHERS = (
    LazyModuleMixin,
    torch.jit.ScriptModule,
    torch.fx.GraphModule,
    nn.DataParallel,
    nn.parallel.DistributedDataParallel,
)

_C.register_modules(nn.Module, _EMPTY, UNREAD, MODULE_STATE)


def _module_fields(module: nn.Module) -> dict[str, Any] | None:
    """Return what is compared of a module, in its order; None for one that is itself compared.

    Those are modules with hooks, and those that find attributes in their own way.
    """
    kind, state = type(module), instance_dict(module)
    if state is None or not _has_only_fields(kind) or not all(type(name) is str for name in state):
        return None
    if any(not is_a(state.get(name, {}), dict) or state.get(name) for name in _EMPTY):
        return None
    return {name: item for name, item in state.items() if name not in _NOT_COMPARED}


def fields_of_any(value: Any) -> dict[str, Any] | None:
    """Return the fields of an object or a module; None for one that is more than its fields."""
    return _module_fields(value) if is_a(value, nn.Module) else fields_of(value)


def is_plain(value: Any, compared: Callable[[type], Container[str] | None]) -> bool:
    """Tell whether an object or a module, and each module in it, is no more than its fields.

    Neither it nor one in it is in itself, by whatever lists, dicts and objects, nor nested deep.

    Args:
        value: the object.
        compared: returns the names of the fields of a class that matter; None for all.
    """
    done: set[int] = set()

    def check(value: Any, around: frozenset[int]) -> bool:
        fields = fields_of_any(value)
        if fields is not None:
            names = compared(type(value))
            items = [item for name, item in fields.items() if names is None or name in names]
        elif is_a(value, nn.Module):
            return False
        elif type(value) in (list, tuple):
            items = list(value)
        elif is_a(value, dict):
            items = list(dict.values(value))
        else:
            return True
        if id(value) in done:
            return True
        inside = around | {id(value)}
        if id(value) in around or len(inside) > MOST_LEVELS:
            return False
        if not all(check(item, inside) for item in items):
            return False
        done.add(id(value))
        return True

    return fields_of_any(value) is not None and check(value, frozenset())


def _has_only_fields(kind: type[nn.Module]) -> bool:
    return (
        type(kind) in (type, abc.ABCMeta)
        and not issubclass(kind, _OTHERS)
        and all(base.__flags__ & HEAP_TYPE for base in kind.__mro__[:-1])
        and kind.__getattribute__ is object.__getattribute__
        and kind.__getattr__ is nn.Module.__getattr__
        and not slot_names(kind)
    )


def has_plain_call(target: Any) -> TypeGuard[nn.Module]:
    """Tell whether something is a module of which a call runs a method `forward` alone."""
    return (
        isinstance(target, nn.Module)
        and type(target).__call__ is nn.Module.__call__
        and isinstance(target.forward, types.MethodType)
        and target.forward.__self__ is target
        and target._compiled_call_impl is None
        and not any(getattr(target, name) for name in MODULE_HOOKS)
        and not _has_any_global_hook()
    )
