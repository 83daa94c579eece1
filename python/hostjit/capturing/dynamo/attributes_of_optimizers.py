# SPDX-License-Identifier: Apache-2.0
"""Attributes that code assigns to optimizers, `self.steps += 1`.

Dynamo does not know an optimizer among the objects that code changes, and forgets such changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch._dynamo.variables import builder
from torch._dynamo.variables.optimizer import OptimizerVariable

from hostjit.replacements import replaced_attribute

__all__ = ["storing_attributes_of_optimizers"]


@contextlib.contextmanager
def storing_attributes_of_optimizers() -> Iterator[None]:
    """Have Dynamo store what is assigned to an attribute of an optimizer."""
    original: Any = builder.VariableBuilder._wrap

    def wrap(self: Any, value: Any) -> Any:
        variable = original(self, value)
        changes = self.tx.output.side_effects
        if isinstance(variable, OptimizerVariable) and value not in changes:
            return changes.track_object_existing(value, variable)
        return variable

    with replaced_attribute(builder.VariableBuilder, "_wrap", wrap):
        yield
