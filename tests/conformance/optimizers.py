# SPDX-License-Identifier: Apache-2.0
"""The optimizers of `optim_db`: some steps of each, in every implementation that it has."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_optimizers import optim_db

from conformance.case import DTYPES, Case, spread

__all__ = ["Steps", "optimizer_calls", "optimizer_cases"]

_DTYPES = ("float32", "float64", "bfloat16")
_SHAPES = ((4, 3), (5,), (2, 2, 3))
_STEPS = 3


@dataclasses.dataclass
class Steps:
    """Some steps of an optimizer.

    Attributes:
        make: makes the optimizer of its parameters.
        parameters: what they are at the beginning, with their gradients.
        closure: whether a step evaluates the loss itself.
    """

    make: Callable[[list[torch.Tensor]], torch.optim.Optimizer]
    parameters: list[torch.Tensor]
    closure: bool

    def in_float64(self) -> Steps:
        """Return the same steps of parameters that are more exact."""
        parameters = [parameter.detach().double() for parameter in self.parameters]
        for parameter, original in zip(parameters, self.parameters, strict=True):
            assert original.grad is not None
            parameter.requires_grad_().grad = original.grad.double()
        return dataclasses.replace(self, parameters=parameters)

    def run(self, compile_step: Callable[[Any], Any]) -> list[Any]:
        """Return the parameters and the optimizer's state after the steps."""
        parameters = copy.deepcopy(self.parameters)
        optimizer = self.make(parameters)
        step = compile_step(optimizer.step)
        for _ in range(_STEPS):
            if self.closure:
                step(functools.partial(_loss, parameters))
            else:
                step()
            with torch.no_grad():
                for parameter in parameters:
                    assert parameter.grad is not None
                    parameter.grad.mul_(-0.75)
        states = [dict(optimizer.state[parameter]) for parameter in parameters]
        return [*(parameter.detach() for parameter in parameters), *states]


def optimizer_cases() -> list[Case]:
    """Return all cases, in the order of the database."""
    return [Case(f"optim.{entry}", dtype) for entry in _entries() for dtype in _DTYPES]


def optimizer_calls(case: Case, limit: int | None, device: str) -> Iterator[Steps]:
    """Make the calls of a case: each configuration in the plain, foreach and fused forms."""
    info = _entries()[case.entry.removeprefix("optim.")]
    forms: list[dict[str, bool]] = [{}]
    forms += [{"foreach": True}] if "foreach" in info.supported_impls else []
    fused = "fused" in info.supported_impls and device in info.supports_fused_on
    forms += [{"fused": True}] if fused else []
    configurations = [
        sample.kwargs | form for sample in info.optim_inputs_func(device=device) for form in forms
    ]
    for options in spread(configurations, limit):
        parameters = [
            torch.randn(shape, dtype=DTYPES[case.dtype], device=device).requires_grad_()
            for shape in _SHAPES
        ]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
            if info.only_supports_sparse_grads:
                parameter.grad = parameter.grad.to_sparse()
        yield Steps(
            make=functools.partial(info.optim_cls, **options),
            parameters=parameters,
            closure=info.step_requires_closure,
        )


def _loss(parameters: list[torch.Tensor]) -> torch.Tensor:
    for parameter in parameters:
        parameter.grad = None
    with torch.enable_grad():
        loss = torch.stack([(parameter - 1).square().sum() for parameter in parameters]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
    return loss


@functools.cache
def _entries() -> dict[str, Any]:
    return {info.optim_cls.__name__: info for info in optim_db}
