# SPDX-License-Identifier: Apache-2.0
"""What a graph of Dynamo's does to the state of the thread: contexts that it enters, and settings.

Inference mode is taken out of graphs. Traced inside of it, they would make fake tensors that are
inference tensors, of which views fail; and an error would skip the node that leaves the mode. Its
guard would then be destroyed some time later, and set the dispatch keys of the thread to what they
were inside the trace.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.amp import autocast_mode
from torch.autograd import grad_mode
from torch.nn import attention

from hostjit.capturing.checkpoints import with_eager_checkpoints
from hostjit.capturing.thread_state import ThreadState
from hostjit.capturing.traced_graph import source_location

__all__ = [
    "PARTLY_IN_INFERENCE_MODE",
    "Inference",
    "Modes",
    "eager_graph",
    "find_modes",
    "find_setter",
    "in_inference_mode",
    "say_setter",
    "take_out_inference_mode",
]

PARTLY_IN_INFERENCE_MODE = (
    "a part of the call is computed in another inference mode than the rest; put all of it in "
    "torch.inference_mode(), or use torch.no_grad()"
)
_enter_inference_mode: Any = grad_mode._enter_inference_mode
_exit_inference_mode: Any = grad_mode._exit_inference_mode
_entered = threading.local()


class Inference(enum.Enum):
    """How a graph stands to inference mode."""

    AS_CALLED = "the mode of the caller, which it does not change"
    WHOLE = "all of it is computed in inference mode, the caller is not"
    PARTLY = "only a part of it is computed in the mode of the caller"


@dataclasses.dataclass(frozen=True)
class Modes:
    """What a graph does to the modes of autograd.

    Attributes:
        inference: in which mode it computes.
        changes_grad_mode: it leaves recording of gradients switched, on or off.
        leaves_inference_mode: it may compute outside of inference mode when the caller is in it.
        where: of what enters inference mode, if something does.
    """

    inference: Inference
    changes_grad_mode: bool
    leaves_inference_mode: bool
    where: str | None


def find_modes(module: torch.fx.GraphModule) -> Modes:
    """Read the modes off of Dynamo's graph; the thread is in those of the caller."""
    called = inference = torch.is_inference_mode_enabled()
    grad = torch.is_grad_enabled()
    saved: dict[Any, tuple[bool, bool]] = {}
    seen: set[bool] = set()
    for node in module.graph.nodes:
        if node.target is _enter_inference_mode:
            saved[node] = inference, grad
            entered = bool(node.args[0])
            if not entered and not inference and not grad:
                seen |= {False, True}  # it switches gradients on, and nothing else
            inference, grad = entered, not entered
        elif node.target is _exit_inference_mode:
            inference, grad = saved[node.args[0]]
        elif node.target is torch._C._set_grad_enabled:
            grad = bool(node.args[0])
        elif _computes(node):
            seen.add(inference)
    where = next(map(source_location, saved), None)
    kind = Inference.AS_CALLED
    if saved and seen - {called}:
        kind = Inference.WHOLE if seen == {True} else Inference.PARTLY
    leaves = any(not node.args[0] for node in saved)
    return Modes(kind, grad != torch.is_grad_enabled(), leaves, where)


def take_out_inference_mode(module: torch.fx.GraphModule, *, and_grad_mode: bool = False) -> None:
    """Remove what enters and leaves inference mode: whoever calls the graph is in the right one.

    `and_grad_mode`: also what switches recording of gradients, of which inference mode has none.
    """
    graph = module.graph
    nodes = graph.find_nodes(op="call_function", target=_enter_inference_mode)
    if not nodes:
        return
    unwanted = [*graph.find_nodes(op="call_function", target=_exit_inference_mode), *nodes]
    if and_grad_mode:
        unwanted += graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)
    for node in unwanted:
        graph.erase_node(node)
    module.recompile()


def in_inference_mode(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs a compiled graph in inference mode."""

    def call(*inputs: Any) -> Any:
        with torch._C._InferenceMode(True):
            return run(*inputs)

    return call


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
        return module.forward
    for node in nodes:
        if node.target is _enter_inference_mode:
            node.target = _enter_recorded
    module.recompile()

    def run(*inputs: Any) -> Any:
        state = ThreadState.current()
        with _recorded() as guards:
            try:
                return module.forward(*inputs)
            except BaseException:
                for guard in reversed(guards):
                    guard.__exit__(None, None, None)
                state.restore()
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


def _computes(node: torch.fx.Node) -> bool:
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
)
