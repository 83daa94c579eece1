# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers inside a recorded call: in the form of tensors, as they are compiled.

PyTorch's own steps read the step count as a number, which would be another one at every call.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils._python_dispatch import _disable_current_modes

from hostjit.optimizers.rules import RULES
from hostjit.optimizers.step import Step, has_original_step
from hostjit.recording.recorder import Recorder
from hostjit.recording.state import State

__all__ = ["RecordedSteps"]

_READ = frozenset(
    {
        *("param_groups", "state", "params", "defaults", "grad_scale", "found_inf", "step"),
        *("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"),
    }
)


class RecordedSteps:
    """While entered, the steps of the optimizers that a call reaches are recorded as tensors."""

    def __init__(self, recorder: Recorder, state: State) -> None:
        self._recorder = recorder
        self._state = state
        self._thread = threading.get_ident()
        # The optimizers, what they had for a `step` of their own, and what they have instead.
        self._replaced: list[tuple[torch.optim.Optimizer, Any, Any]] = []

    def __enter__(self) -> RecordedSteps:
        self._state.on_optimizer = self._replace
        for optimizer in self._state.optimizers:
            self._replace(optimizer)
        return self

    def __exit__(self, *_: object) -> None:
        self._state.on_optimizer = None
        for optimizer, original, step in self._replaced:
            if vars(optimizer).get("step") is not step:
                continue  # the call has assigned another
            if original is None:
                vars(optimizer).pop("step", None)
            else:
                vars(optimizer)["step"] = original
        # Each `step` has this object, which would live on, with all tensors of the recording.
        self._replaced.clear()

    def _replace(self, optimizer: torch.optim.Optimizer) -> None:
        if type(optimizer) not in RULES or not has_original_step(optimizer):
            return
        original = vars(optimizer).get("step")
        whole = optimizer.step

        def step(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread or args or kwargs:
                return whole(*args, **kwargs)
            if self._record(optimizer):
                if original is not None:  # what a schedule looks at
                    optimizer._opt_called = True  # type: ignore[attr-defined]
                return None
            return whole()

        vars(optimizer)["step"] = step
        self._replaced.append((optimizer, original, step))

    def _record(self, optimizer: torch.optim.Optimizer) -> bool:
        """Make the step, and record it; False where it has no form of tensors."""
        step = Step(optimizer, RULES[type(optimizer)])
        with _disable_current_modes():
            if step.is_unfinished() or step.obstacle():
                return False
            module = step.graph()
            self._state.add_names(_READ)
            for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
                self._state.add_object(getattr(torch_optimizer, name), name)
        with torch._C.DisableTorchFunction():
            for binding, example in zip(step.bindings, step.examples, strict=True):
                if isinstance(binding, tuple) and binding[0] == "number":
                    self._recorder.add_number(example, binding)
        with torch.no_grad():
            module(*step.examples)
        return True
