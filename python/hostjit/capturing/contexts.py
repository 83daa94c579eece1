# SPDX-License-Identifier: Apache-2.0
"""What a graph of Dynamo's does to the state of the thread: contexts and settings."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._functorch import predispatch
from torch.amp import autocast_mode
from torch.autograd import grad_mode
from torch.nn import attention

from hostjit.capturing.gradients.checkpoints import with_eager_checkpoints
from hostjit.capturing.graph_module import running
from hostjit.capturing.thread_state import ThreadState

__all__ = [
    "computes",
    "eager_graph",
    "find_setter",
    "say_setter",
]

_enter_inference_mode: Any = grad_mode._enter_inference_mode
_entered = threading.local()


def find_setter(module: torch.fx.GraphModule) -> torch.fx.Node | None:
    """Return a node that sets what later code reads, and of which no context manager is the pair.

    Whether another one sets it back can't be told: Dynamo itself may have changed it by now.
    """
    setters = (node for node in module.graph.nodes if node.target in _SETTERS)
    return next(setters, None)


def say_setter(node: torch.fx.Node) -> str:
    """Say why a graph with such a node runs eagerly."""
    name = getattr(node.target, "__name__", node.target)
    return f"{name} changes a setting for what comes after it; use a context manager for that"


def eager_graph(module: torch.fx.GraphModule) -> Callable[..., Any]:
    """Return what runs a graph as it is, and leaves its contexts also when an operator raises."""
    module = with_eager_checkpoints(module)
    nodes = module.graph.nodes
    if not any(_is_setting(node) or node.target in _MODES for node in nodes):
        return running(module)
    for node in nodes:
        if node.target is _enter_inference_mode:
            node.target = _enter_recorded
    module.recompile()
    forward = running(module)

    def run(*inputs: Any) -> Any:
        state = ThreadState.current()
        with _recorded() as guards:
            try:
                return forward(*inputs)
            except BaseException:
                for guard in reversed(guards):
                    guard.__exit__(None, None, None)
                state.restore_after_error()
                raise

    return run


def _enter_recorded(mode: bool) -> Any:
    """Enter inference mode, for `eager_graph` to leave: a guard may be left twice."""
    guard = _enter_inference_mode(mode)
    _entered.guards.append(guard)
    return guard


@contextlib.contextmanager
def _recorded() -> Iterator[list[Any]]:
    before: Sequence[Any] | None = getattr(_entered, "guards", None)
    _entered.guards = []
    try:
        yield _entered.guards
    finally:
        _entered.guards = before


def computes(node: torch.fx.Node) -> bool:
    """Tell whether a node of Dynamo's graph is none of those that change settings alone."""
    return node.op.startswith("call_") and not _is_setting(node)


def _is_setting(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and node.target in _SETTINGS


def _named(owner: Any, *names: str) -> set[Any]:
    return {getattr(owner, name) for name in names if hasattr(owner, name)}


_MODES = frozenset({_enter_inference_mode, torch._C._set_grad_enabled})
_SETTERS = frozenset(
    _named(
        torch,
        "set_autocast_cache_enabled",
        "set_autocast_cpu_dtype",
        "set_autocast_cpu_enabled",
        "set_autocast_dtype",
        "set_autocast_enabled",
        "set_autocast_gpu_dtype",
        "set_default_dtype",
        "set_float32_matmul_precision",
        "use_deterministic_algorithms",
    )
    | _named(torch._C, "_set_deterministic_algorithms")
    | _named(
        torch.backends.cuda,
        "enable_cudnn_sdp",
        "enable_flash_sdp",
        "enable_math_sdp",
        "enable_mem_efficient_sdp",
    )
)
_SETTINGS = (
    _SETTERS
    | _named(autocast_mode, "_enter_autocast", "_exit_autocast")
    | _named(attention, "_backend_from_string", "_sdpa_kernel")
    | _named(torch, "autocast_decrement_nesting", "autocast_increment_nesting")
    | _named(torch, "clear_autocast_cache")
    | _named(predispatch, "_enter_dual_level", "_exit_dual_level")
)
