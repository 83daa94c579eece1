# SPDX-License-Identifier: Apache-2.0
"""An `autograd.Function` inside of `torch.func`'s transforms: Dynamo stops there.

It follows the forward alone, so that a transform would differentiate that instead of running the
function's own `backward`, `jvp` or `vmap`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

__all__ = ["stop_at_transformed_functions", "stopping_at_transformed_functions"]

# Says of Dynamo's translator of some code whether it stops there.
Choice = Callable[[Any], bool]


def stopping_at_transformed_functions() -> contextlib.AbstractContextManager[None]:
    """Have Dynamo leave transforms of such functions alone, in this thread."""
    owner = threading.get_ident()
    patch: contextlib.AbstractContextManager[None] = _patch(
        lambda _: threading.get_ident() == owner
    )
    return patch


def stop_at_transformed_functions(is_chosen: Choice) -> None:
    """Have Dynamo leave them alone from now on, in the code that is chosen."""
    _patch(is_chosen).__enter__()


def _patch(is_chosen: Choice) -> Any:
    from torch._dynamo.exc import unimplemented
    from torch._dynamo.variables.misc import AutogradFunctionVariable

    original = AutogradFunctionVariable.call_apply

    def call(self: Any, tx: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if torch._C._functorch.peek_interpreter_stack() is not None and is_chosen(tx):
            unimplemented(
                gb_type="autograd.Function in a transform",
                context=self.fn_cls.__qualname__,
                explanation="A transform runs a function's own backward, jvp or vmap.",
                hints=[],
            )
        return original(self, tx, args, kwargs)

    return mock.patch.object(AutogradFunctionVariable, "call_apply", call)
