# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers that there is no rule for: the code of their class is compiled.

Numbers of groups and of the state that change, such as rates and counters, are open.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from hostjit import _C
from hostjit.compiling.code_choices import CodeChoices
from hostjit.compiling.compilation import Compilation
from hostjit.compiling.specializer import route_any_call

__all__ = ["OwnStepCompilation", "definition_of", "is_written_elsewhere"]


def definition_of(kind: type[torch.optim.Optimizer]) -> types.CellType | None:
    """Return the variable in which the `step` of a class has what it runs hooks around.

    None where there is no such thing, as of a class that has no objects yet.
    """
    step: Any = kind.step
    if not getattr(step, "hooked", False) or not isinstance(step, types.FunctionType):
        return None
    cells = dict(zip(step.__code__.co_freevars, step.__closure__ or (), strict=True))
    cell = cells.get("func")
    is_known = cell is not None and cell.cell_contents is getattr(step, "__wrapped__", None)
    return cell if is_known else None


def is_written_elsewhere(kind: type[torch.optim.Optimizer]) -> bool:
    """Tell whether a class owes nothing of its step to PyTorch, and is called in PyTorch's way.

    Steps of PyTorch's do something else where Dynamo follows them, in another precision.
    """
    bases = kind.__mro__[: kind.__mro__.index(torch.optim.Optimizer)]
    is_pytorchs = any(base.__module__.startswith("torch.optim") for base in bases)
    return definition_of(kind) is not None and not is_pytorchs


class OwnStepCompilation(Compilation):
    """Specializes `optimizer.step()` by what the code of its class does.

    A step runs eagerly where the optimizer may make state, and with hooks.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        runtime: str | None,
        fallback: bool,
        choices: CodeChoices | None = None,
        *,
        as_called: bool = False,
    ) -> None:
        """Make one. `as_called`: of `optimizer.step` as it is found at each call."""
        self._optimizer = optimizer
        # What the optimizer itself has by the name of its step: None, or what a schedule put there.
        self._step: dict[str, Any] | None = {"step": None} if as_called else None
        self._begun: set[int] = set()
        target = _as_defined(optimizer, self._step)
        super().__init__(target, runtime, fallback, choices=choices)

    def _target_name(self) -> str:
        return f"{type(self._optimizer).__name__}.step"

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        optimizer = self._optimizer
        # What a schedule looks at, to see that steps are made.
        optimizer._opt_called = True  # type: ignore[attr-defined]
        if args or kwargs or self._may_make_state():
            return None
        if self._step is not None:
            found = vars(optimizer).get("step")
            if not _is_of_class(found, type(optimizer)):
                return None
            self._step["step"] = found
        if any(_hooks(optimizer)):
            self._say("hooks", "runs eagerly: the optimizer has hooks")
            return None
        return super()._answer(args, kwargs)

    def _answer_full(self) -> _C.Specialization | None:
        """Leave all steps to eager mode: what they call is PyTorch's, or as often another."""
        self._say_full("it runs eagerly from now on")
        return route_any_call(self.target)

    def _may_make_state(self) -> bool:
        """Whether a parameter has no state, and a gradient for the first time."""
        found = {
            id(param)
            for group in self._optimizer.param_groups
            for param in group["params"]
            if param.grad is not None and param not in self._optimizer.state
        }
        is_new = not found <= self._begun
        self._begun |= found
        return is_new


def _hooks(optimizer: torch.optim.Optimizer) -> list[dict[Any, Any]]:
    """All hooks that run around a step."""
    return [
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    ]


def _is_of_class(step: Any, kind: type[torch.optim.Optimizer]) -> bool:
    """Whether what an optimizer has as its own step does what that of its class does."""
    if step is None:
        return True
    is_of_schedule = getattr(step, "_wrapped_by_lr_sched", False)
    return is_of_schedule and getattr(step, "__wrapped__", None) is kind.step


def _as_defined(
    optimizer: torch.optim.Optimizer, known: dict[str, Any] | None
) -> Callable[..., Any]:
    """Return what makes a step as its class defines it; with hooks, and where `known`, as called.

    `known`: what of the optimizer's own makes no difference.
    """
    attributes = vars(optimizer)
    kind = type(optimizer)
    own = kind.step if known is None else None
    cell = definition_of(kind)
    assert cell is not None
    definition = cell.cell_contents

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def as_called(*args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs) if own is None else own(optimizer, *args, **kwargs)

    def step(*args: Any, **kwargs: Any) -> Any:
        if known is not None and attributes.get("step") is not known["step"]:
            return as_called(*args, **kwargs)
        if (
            optimizer._optimizer_step_pre_hooks
            or optimizer._optimizer_step_post_hooks
            or torch_optimizer._global_optimizer_pre_hooks
            or torch_optimizer._global_optimizer_post_hooks
        ):
            return as_called(*args, **kwargs)
        return definition(optimizer, *args, **kwargs)

    return step
