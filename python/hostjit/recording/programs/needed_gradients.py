# SPDX-License-Identifier: Apache-2.0
"""Whether results of a recorded call need gradients, and a replay can give them."""

from __future__ import annotations

import types
from collections.abc import Set
from typing import Any

import torch

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.programs.results import Results, is_new_leaf

__all__ = ["needs_gradients"]


def needs_gradients(results: Results, recorder: Recorder, codes: Set[types.CodeType]) -> bool:
    """Tell whether results have graphs that a backward pass may go through later.

    `codes`: what ran. Raises CaptureError where no recorded graph gives the gradients.
    """
    wanted = [x for x in results.tensors[: results.user_count] if x.requires_grad]
    graphs = [x for x in wanted if not is_new_leaf(x)]
    if all(map(_is_released, graphs)):
        return False
    if len(graphs) < len(wanted):
        raise CaptureError(
            CaptureFailure.NEEDS_AUTOGRAD,
            "it returns results that need gradients and new tensors that collect some",
            hint="return them detached",
        )
    if recorder.ran_backward:
        raise CaptureError(
            CaptureFailure.NEEDS_AUTOGRAD,
            "it runs a backward pass and returns results that need gradients",
            hint="return them detached",
        )
    if recorder.has_hooks:
        problem = "hooks were added to its graph"
    elif _runs_custom_function(codes):
        problem = "a torch.autograd.Function has a backward of its own"
    else:
        return True
    raise CaptureError(CaptureFailure.NEEDS_AUTOGRAD, f"a result needs gradients, and {problem}")


def _runs_custom_function(codes: Set[types.CodeType]) -> bool:
    """Tell whether the code that ran is that of a `torch.autograd.Function`."""
    apply: Any = torch.autograd.Function.apply
    if hasattr(apply, "__func__"):  # up to torch 2.13; C code calls the function itself later
        return apply.__func__.__code__ in codes
    found = [torch.autograd.Function]
    for kind in found:
        found += kind.__subclasses__()
    return any(getattr(kind.forward, "__code__", None) in codes for kind in found)


def _is_released(result: torch.Tensor) -> bool:
    """Tell whether the graph of a result was used up by a backward pass."""
    pending, seen = [result.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_saved_"):
                try:
                    getattr(node, name)
                except RuntimeError as error:
                    # Else it was written, and a backward pass would raise.
                    if "been freed" in str(error) or "second time" in str(error):
                        return True
        pending.extend(follower for follower, _ in node.next_functions)
    return False
