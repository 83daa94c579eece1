# SPDX-License-Identifier: Apache-2.0
"""A cheap guard on `torch.autograd.graph.saved_tensors_hooks`, where there are none to inline.

Dynamo asks for them at every call, by four Python functions: a fifteenth of a call of one operator.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.guards import GuardBuilder

from hostjit.replacements import replaced_attribute

__all__ = ["guarding_saved_tensor_hooks"]

_GUARD = "AUTOGRAD_SAVED_TENSORS_HOOKS"
_innermost = torch._C._autograd._top_saved_tensors_default_hooks


@contextlib.contextmanager
def guarding_saved_tensor_hooks() -> Iterator[None]:
    """Have Dynamo ask once whether there are hooks, in this thread, and for more if there are."""
    owner = threading.get_ident()
    ask = getattr(GuardBuilder, _GUARD)

    @functools.wraps(ask)
    def ask_once(self: Any, guard: Any) -> None:
        if threading.get_ident() != owner or not _none_is_inlined():
            ask(self, guard)
            return
        code = ["hostjit: no hooks of saved tensors are inlined"]
        self.guard_manager.root.add_lambda_guard(_none_is_inlined, code, None)

    with replaced_attribute(GuardBuilder, _GUARD, ask_once):
        yield


def _none_is_inlined(_: object = None) -> bool:
    """Tell whether no hooks are there, or none of which Dynamo has the graphs."""
    hooks = _innermost(True)
    return hooks is None or not all(isinstance(hook, torch.fx.GraphModule) for hook in hooks)
