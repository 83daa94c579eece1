# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers inside a recorded call: in the form of tensors, as they are compiled.

PyTorch's own steps read the step count as a number, which would be another one at every call. A
`torch.amp.GradScaler` reads whether it found an infinity, and leaves the step out then.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import optimizer as torch_optimizer
from torch.utils._python_dispatch import _disable_current_modes

from hostjit.capturing.graph_module import running
from hostjit.optimizers.own_step import definition_of
from hostjit.optimizers.rules import kinds_with_rules, rule_of
from hostjit.optimizers.step import Step
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.reach.state import State

__all__ = ["RecordedSteps"]

_READ = frozenset(
    {
        *("param_groups", "state", "params", "defaults", "grad_scale", "found_inf", "step"),
        *("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"),
    }
)


class RecordedSteps:
    """While entered, steps of optimizers in this thread are recorded as tensors.

    However they are called (`optimizer.step()`, a method kept elsewhere, `SGD.step(optimizer)`, a
    schedule's function or a user's around it), they come to the function of their class, in which
    PyTorch runs hooks around the one that it was defined as. That one is replaced.
    """

    _lock = threading.Lock()
    _entered = 0
    # What PyTorch's functions had in the variables that are replaced.
    _replaced: list[tuple[types.CellType, Any]] = []  # noqa: RUF012
    _scaled: Any = None
    _of_thread = threading.local()

    def __init__(self, recorder: Recorder, state: State) -> None:
        self._recorder = recorder
        self._state = state
        self._outer: RecordedSteps | None = None

    def __enter__(self) -> RecordedSteps:
        kind = RecordedSteps
        self._outer = getattr(kind._of_thread, "current", None)
        kind._of_thread.current = self
        with kind._lock:
            kind._entered += 1
            if kind._entered == 1:
                found = filter(None, map(definition_of, kinds_with_rules()))
                for cell in {id(cell): cell for cell in found}.values():  # classes share them
                    kind._replaced.append((cell, cell.cell_contents))
                    cell.cell_contents = _recorded(cell.cell_contents)
                kind._scaled = GradScaler._maybe_opt_step
                unless_infinite: Any = _recorded_unless_infinite(kind._scaled)
                GradScaler._maybe_opt_step = unless_infinite  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        kind = RecordedSteps
        kind._of_thread.current = self._outer
        with kind._lock:
            kind._entered -= 1
            if kind._entered == 0:
                for cell, contents in kind._replaced:
                    cell.cell_contents = contents
                kind._replaced.clear()
                GradScaler._maybe_opt_step = kind._scaled  # type: ignore[method-assign]

    def knows(self, optimizer: torch.optim.Optimizer) -> bool:
        """Tell whether there is a rule for an optimizer, which was there before the call.

        Of a call that can't be replayed it knows none.
        """
        if self._recorder.problem:
            return False
        return rule_of(type(optimizer)) is not None and id(optimizer) in self._state.objects

    def record(
        self, optimizer: torch.optim.Optimizer, found_inf: torch.Tensor | None = None
    ) -> bool:
        """Make the step, and record it; False where it has no form of tensors.

        With `found_inf`, all that the step writes stays as it is where that says so.
        """
        rule = rule_of(type(optimizer))
        assert rule is not None
        step = Step(optimizer, rule, as_called=found_inf is not None)
        with _disable_current_modes():
            # Hooks run around it, and are recorded as any code is; not where there may be no step.
            if step.is_unfinished() or step.obstacle(hooks=found_inf is not None, scaled=False):
                return False
            if step.is_on_cuda():
                return False  # a replay would be part of a CUDA graph that eager refuses to make
            module = step.graph()
            self._state.add_names(_READ)
            for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
                self._state.add_object(getattr(torch_optimizer, name), name)
        with torch._C.DisableTorchFunction():
            for binding, example in zip(step.bindings, step.examples, strict=True):
                if isinstance(binding, tuple) and binding[0] == "number":
                    self._recorder.add_number(example, binding)
            scale = getattr(optimizer, "grad_scale", None)
            found_inf = getattr(optimizer, "found_inf", found_inf)
            with torch.no_grad(), _taken_back(found_inf, step.examples):
                if scale is not None:
                    for gradient in step.gradients():
                        gradient.div_(scale)
                running(module)(*step.examples)
        return True


def _recorded(original: Any) -> Any:
    def step(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        current = getattr(RecordedSteps._of_thread, "current", None)
        closures = [*args, *(kwargs[name] for name in ("closure",) if name in kwargs)]
        is_known = len(closures) == len(args) + len(kwargs) <= 1
        if current is None or not is_known or not current.knows(optimizer):
            return original(optimizer, *args, **kwargs)
        loss = None
        if closures and closures[0] is not None:
            with torch.enable_grad():
                loss = closures[0]()
        if not current.record(optimizer):
            original(optimizer)
        return loss

    return step


def _recorded_unless_infinite(original: Any) -> Any:
    """Return what `GradScaler` calls in the place of `original`, which reads what it found."""

    def maybe_step(
        scaler: GradScaler,
        optimizer: torch.optim.Optimizer,
        optimizer_state: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        current = getattr(RecordedSteps._of_thread, "current", None)
        found = [*optimizer_state["found_inf_per_device"].values()]
        is_plain = not (args or kwargs) and len(found) == 1
        if current is not None and is_plain and current.knows(optimizer):
            # A schedule wants to know whether there was a step.
            is_asked = hasattr(optimizer.step, "_wrapped_by_lr_sched")
            is_known = not is_asked or hasattr(optimizer, "_opt_called")
            if is_known and current.record(optimizer, found[0]):
                return None
        return original(scaler, optimizer, optimizer_state, *args, **kwargs)

    return maybe_step


@contextlib.contextmanager
def _taken_back(condition: torch.Tensor | None, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Take back what is written to tensors meanwhile, where a condition holds."""
    if condition is None:
        yield
        return
    before = [(tensor, tensor._version, tensor.clone()) for tensor in tensors]
    yield
    skipped = condition != 0
    for tensor, version, old in before:
        if tensor._version != version:
            tensor.copy_(torch.where(skipped, old, tensor))
