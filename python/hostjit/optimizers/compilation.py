# SPDX-License-Identifier: Apache-2.0
"""The Python side of a compiled `optimizer.step`."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hostjit import _C
from hostjit.capturing.functional.trace import trace_functional
from hostjit.compiling.code_choices import CodeChoices
from hostjit.compiling.specializer import Specializer
from hostjit.optimizers.own_step import OwnStepCompilation, is_written_elsewhere
from hostjit.optimizers.rules import Rule, rule_of
from hostjit.optimizers.step import Step, is_factor

__all__ = ["OptimizerCompilation", "compilation_as_called", "compilation_of_step", "optimizer_of"]


def optimizer_of(target: Any) -> torch.optim.Optimizer | None:
    """Return the optimizer whose `step` this is, as its class defines it.

    That is a method, or what a schedule has put in its place. None for everything else.
    """
    found = getattr(target, "__self__", None)
    function = getattr(target, "__func__", None)
    if getattr(target, "_wrapped_by_lr_sched", False) and isinstance(target, types.FunctionType):
        held = (cell.cell_contents for cell in target.__closure__ or ())
        references = (value for value in held if isinstance(value, weakref.ref))
        found = next((value() for value in references), None)
        function = getattr(target, "__wrapped__", None)
    is_its_step = isinstance(found, torch.optim.Optimizer) and function is type(found).step
    return found if is_its_step else None


def compilation_of_step(
    target: Callable[..., Any],
    optimizer: torch.optim.Optimizer,
    runtime: str | None,
    fallback: bool,
    choices: CodeChoices | None = None,
) -> Specializer:
    """Return what specializes the step of an optimizer, as its class defines it."""
    if is_written_elsewhere(type(optimizer)):
        return OwnStepCompilation(optimizer, runtime, fallback, choices)
    return OptimizerCompilation(target, optimizer, runtime, fallback, choices)


def compilation_as_called(
    optimizer: torch.optim.Optimizer, runtime: str | None
) -> Specializer | None:
    """Return what specializes `optimizer.step` as each call finds it: somebody may replace it.

    None where there is no program for it.
    """
    if rule_of(type(optimizer)) is not None:
        return OptimizerCompilation.as_called(optimizer, runtime)
    if is_written_elsewhere(type(optimizer)):
        return OwnStepCompilation(optimizer, runtime, fallback=True, as_called=True)
    return None


class OptimizerCompilation(Specializer):
    """Specializes `optimizer.step()` on the parameters that have a gradient.

    Parameters, gradients and state are found through the optimizer at every call. A step runs
    eagerly until the optimizer has made its state, with a closure, and where a rule is missing.
    """

    def __init__(
        self,
        target: Any,
        optimizer: torch.optim.Optimizer,
        runtime: str | None,
        fallback: bool,
        choices: CodeChoices | None = None,
    ) -> None:
        super().__init__(target, runtime, fallback, choices=choices)
        self._optimizer = optimizer
        self._as_called = False
        # Of the last program, and those that have changed since the first: by group, and by name.
        self._known: dict[tuple[int, str], Any] = {}
        self._factors: frozenset[str] = frozenset()

    @classmethod
    def as_called(
        cls, optimizer: torch.optim.Optimizer, runtime: str | None
    ) -> OptimizerCompilation:
        """Make one for `optimizer.step` as it is found at each call."""

        def step(*args: Any, **kwargs: Any) -> Any:
            return optimizer.step(*args, **kwargs)

        made = cls(step, optimizer, runtime, fallback=True)
        made._as_called = True
        return made

    def _target_name(self) -> str:
        return f"{type(self._optimizer).__name__}.step"

    def _step(self, rule: Rule, factors: frozenset[str]) -> Step:
        return Step(self._optimizer, rule, self._as_called, factors)

    def _note_factors(self, rule: Rule) -> None:
        """Note which factors have changed since the last program was made."""
        groups = enumerate(self._optimizer.param_groups)
        now = {(index, key): group[key] for index, group in groups for key in rule.factors}
        for at, value in now.items():
            known = self._known.get(at)
            if is_factor(known) and is_factor(value) and known != value:
                self._factors |= {at[1]}
        self._known = now

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization | None:
        # What a schedule looks at, to see that steps are made.
        self._optimizer._opt_called = True  # type: ignore[attr-defined]
        if args or kwargs:
            return None  # a closure
        rule = rule_of(type(self._optimizer))
        if rule is None:
            kind = type(self._optimizer).__qualname__
            return self._run_eagerly(
                args, kwargs, "rule", f"runs eagerly: there are no steps of {kind} to compile"
            )
        self._note_factors(rule)
        factors = self._factors
        step = self._step(rule, factors)
        if step.is_unfinished():
            return None
        obstacle = step.obstacle()
        if obstacle:
            return self._run_eagerly(args, kwargs, obstacle, f"runs eagerly: {obstacle}")
        graph = trace_functional(step.graph(), step.examples, FakeTensorMode())
        name = f"{type(self._optimizer).__name__}_step"
        program = self._compile_program(graph.graph_module.graph, name)
        self._count += 1
        self._latest = program
        signature = step.signature()

        def revalidate(*_: Any) -> tuple[Any, ...] | None:
            now = self._step(rule, factors)
            if now.is_unfinished() or now.obstacle() or now.signature() != signature:
                return None
            now.graph()
            return now.watches(), now.bindings, [], None, ([], []), [], None

        return _C.Specialization(
            args=args,
            kwargs=kwargs,
            program=program,
            bindings=[*step.bindings, *graph.inputs[len(step.bindings) :]],
            output=("object", None),
            watches=step.watches(),
            revalidate=revalidate,
            condition=step.condition(),
            mutated=list(graph.mutated),
            runtime=self.runtime,
        )
