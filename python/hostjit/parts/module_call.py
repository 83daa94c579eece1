# SPDX-License-Identifier: Apache-2.0
"""Calls of modules by other code than that of `forward`, which does the same."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch._dynamo.eval_frame import skip_code

from hostjit.capturing.module_fields import has_plain_call

__all__ = ["ModuleCall"]


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
