# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers in functions of `torch.compile`: programs of their own, for any rate.

Dynamo would compile a step for one learning rate, in another precision than eager's, and leave
`capturable` set in the groups of the optimizer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.eval_frame import skip_code

from hostjit import _C

__all__ = ["step_of"]


def _kept_by(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Where an optimizer has its step: whoever drops the one drops the other.

    It holds the optimizer, so no table from outside may hold it. Attributes of the dict of hooks
    are in no state that is saved or copied.
    """
    return vars(optimizer._optimizer_step_pre_hooks)


class _Step:
    """Calls the compiled step of an optimizer, which the code that calls this keeps no longer."""

    def __init__(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        optimizer = self._optimizer()
        assert optimizer is not None, "Dynamo guards it"
        return _kept_by(optimizer)[self._name](*args, **kwargs)


skip_code(_Step.__call__.__code__)


def step_of(optimizer: torch.optim.Optimizer, *, runtime: str | None) -> Callable[..., Any] | None:
    """Return what to call in place of `optimizer.step`; None leaves it.

    `runtime`: as of `hostjit.compile`.
    """
    from hostjit.optimizers import compilation_as_called

    kept, name = _kept_by(optimizer), f"hostjit_step_{runtime}"
    if name not in kept:
        compilation = compilation_as_called(optimizer, runtime)
        if compilation is None:
            return None
        run = torch._dynamo.disable(compilation.target)
        kept[name] = _C.CompiledFunction(run, compilation)
    return _Step(optimizer, name)
