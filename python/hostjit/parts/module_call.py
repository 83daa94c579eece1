# SPDX-License-Identifier: Apache-2.0
"""Calls of modules by other code than that of `forward`, which does the same."""

from __future__ import annotations

import types
from typing import Any, TypeGuard

import torch
from torch._dynamo.eval_frame import skip_code
from torch.nn.modules.module import _has_any_global_hook

from hostjit.capturing.module_fields import MODULE_HOOKS

__all__ = ["ModuleCall", "has_plain_call"]


class ModuleCall:
    """Calls a module, by `run` in place of `forward` where nothing is around that."""

    def __init__(
        self, module: torch.nn.Module, forward: types.FunctionType, run: types.FunctionType
    ) -> None:
        self._module = module
        self._forward = forward
        self._run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module
        forward: Any = module.forward
        if not has_plain_call(module) or forward.__func__ is not self._forward:
            return module(*args, **kwargs)
        return self._run(module, *args, **kwargs)


skip_code(ModuleCall.__call__.__code__)


def has_plain_call(target: Any) -> TypeGuard[torch.nn.Module]:
    """Tell whether something is a module of which a call runs a method `forward` alone."""
    return (
        isinstance(target, torch.nn.Module)
        and type(target).__call__ is torch.nn.Module.__call__
        and isinstance(target.forward, types.MethodType)
        and target.forward.__self__ is target
        and target._compiled_call_impl is None
        and not any(getattr(target, name) for name in MODULE_HOOKS)
        and not _has_any_global_hook()
    )
