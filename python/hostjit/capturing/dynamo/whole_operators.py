# SPDX-License-Identifier: Apache-2.0
"""addcmul and addcdiv as the one operator that they are in eager.

Dynamo makes a product or quotient, another product and a sum of them where a `value` is given: a
tensor for it would break the graph, since the operator takes a number. Each part is rounded, and
has a derivative of its own, so a number goes to the operator.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hostjit.capturing.dynamo.method_handlers import replaced_handler
from hostjit.replacements import replaced_items

__all__ = ["whole_operators"]


@contextlib.contextmanager
def whole_operators() -> Iterator[None]:
    """Have Dynamo keep these operators whole, in this thread."""
    owner = threading.get_ident()
    with contextlib.ExitStack() as stack:
        for patch in _patches(owner):
            stack.enter_context(patch)
        yield


def _patches(owner: int) -> Iterator[contextlib.AbstractContextManager[Any]]:
    from torch._dynamo.variables.tensor import TensorVariable
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

    def only_tensors(take_apart: Callable[..., Any]) -> Callable[..., Any]:
        def call(variable: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
            is_number = not isinstance(kwargs.get("value"), TensorVariable)
            if is_number and threading.get_ident() == owner:
                return None  # as if there were no handler
            return take_apart(variable, tx, *args, **kwargs)

        return call

    handlers = TorchInGraphFunctionVariable._get_handlers()
    kept = {f: only_tensors(handlers[f]) for f in (torch.addcmul, torch.addcdiv) if f in handlers}
    yield replaced_items(handlers, kept)
    for name in ("addcmul_", "addcdiv_"):
        yield replaced_handler(TensorVariable, name, only_tensors)
