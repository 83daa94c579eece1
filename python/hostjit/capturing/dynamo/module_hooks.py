# SPDX-License-Identifier: Apache-2.0
"""Backward hooks of modules in the code that Dynamo follows: it stops there, and goes on behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch.utils.hooks import BackwardHook

from hostjit.replacements import replaced_attribute

__all__ = ["stopping_at_backward_hooks"]

_SETUP = (BackwardHook.setup_input_hook, BackwardHook.setup_output_hook)


@contextlib.contextmanager
def stopping_at_backward_hooks() -> Iterator[None]:
    """Have Dynamo leave alone what hangs them into the autograd graph.

    That looks for a node of its own class behind a tensor, where a compiled part leaves another.
    """
    with contextlib.ExitStack() as stack:
        for method in _SETUP:
            stack.enter_context(
                replaced_attribute(method, "_torchdynamo_disable", True, create=True)
            )
        yield
