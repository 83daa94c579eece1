# SPDX-License-Identifier: Apache-2.0
"""Modules among the arguments of calls, of which calls may bring others: what is compared of them.

`step(model, x)` for many models, or a compiled `forward` of a class of layers: a program that was
made for one module answers for others that have the same in them. Their parameters and buffers are
arguments as the tensors beside them are, and so are the modules in them.
"""

from __future__ import annotations

import abc
from typing import Any

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from hostjit import _C
from hostjit.capturing.instances import HEAP_TYPE, fields_of, instance_dict, is_a, slot_names

__all__ = ["MODULE_HOOKS", "MODULE_STATE", "UNREAD", "is_plain_module", "opened_fields"]

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


def opened_fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of an object whose class is compared by them; None for one that is not."""
    return _module_fields(value) if is_a(value, nn.Module) else fields_of(value)


def is_plain_module(module: nn.Module) -> bool:
    """Tell whether a module, and each that is in it, is no more than its fields.

    None of them is in itself, by whatever lists and dicts.
    """
    return _is_plain(module, frozenset())


def _is_plain(value: Any, around: frozenset[int]) -> bool:
    if is_a(value, nn.Module):
        found = _module_fields(value)
        if found is None:
            return False
        items = list(found.values())
    elif type(value) in (list, tuple):
        items = list(value)
    elif is_a(value, dict):
        items = list(dict.values(value))
    else:
        return True
    inside = around | {id(value)}
    return id(value) not in around and all(_is_plain(item, inside) for item in items)


def _has_only_fields(kind: type[nn.Module]) -> bool:
    return (
        type(kind) in (type, abc.ABCMeta)
        and not issubclass(kind, _OTHERS)
        and all(base.__flags__ & HEAP_TYPE for base in kind.__mro__[:-1])
        and kind.__getattribute__ is object.__getattribute__
        and kind.__getattr__ is nn.Module.__getattr__
        and not slot_names(kind)
    )
