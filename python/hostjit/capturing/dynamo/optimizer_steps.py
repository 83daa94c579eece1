# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers in the code that Dynamo follows: it stops there, and goes on behind.

Followed, a step would compute its corrections in another precision than eager does, and Dynamo
changes the optimizer while it looks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dynamo.exc import unimplemented
from torch._dynamo.source import AttrSource, GlobalSource
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.optimizer import OptimizerVariable

from hostjit.capturing.dynamo.attribute_reads import READ, Read, replaced_reads

__all__ = ["FindStep", "stopping_at_steps"]

FindStep = Callable[[torch.optim.Optimizer], Callable[..., Any] | None]


class _Step(VariableTracker):
    """The `step` of an optimizer, which is called as it is."""

    def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        """Stop."""
        unimplemented(
            gb_type="step of an optimizer",
            context="",
            explanation="A step of an optimizer is a program of its own.",
            hints=[],
        )


@contextlib.contextmanager
def stopping_at_steps(find_step: FindStep | None = None) -> Iterator[None]:
    """Have Dynamo leave steps of optimizers alone, in this thread.

    Args:
        find_step: what to call in place of `optimizer.step`; None leaves it.
    """
    owner = threading.get_ident()

    def reading(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            if threading.get_ident() != owner:
                return original(self, tx, name)
            if name == "param_groups":
                # As of any object: Dynamo's own has each group say that it is capturable from then
                # on, and takes parameters for constants, of which there are no gradients.
                return getattr(super(OptimizerVariable, self), READ)(tx, name)
            if name != "step" or self.source is None:
                return original(self, tx, name)
            step = find_step(self.value) if find_step is not None else None
            if step is None:
                return _Step(source=AttrSource(self.source, name))
            name_of_step = tx.output.install_global_by_id("__hostjit_step", step)
            return _Step(source=GlobalSource(name_of_step))

        return read

    with replaced_reads(OptimizerVariable, reading):
        yield
