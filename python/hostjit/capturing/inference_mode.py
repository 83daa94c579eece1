# SPDX-License-Identifier: Apache-2.0
"""Inference mode in graphs of Dynamo's, which it is taken out of.

Traced inside of it, they would make fake tensors that are inference tensors, of which views fail;
and an error would skip the node that leaves the mode. Its guard would then be destroyed some time
later, and set the dispatch keys of the thread to what they were inside the trace.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence, Set
from typing import Any

import torch
from torch.autograd import grad_mode
from torch.utils import _pytree as pytree

from hostjit.capturing.contexts import computes, find_setter, say_setter
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.overlap import may_write
from hostjit.capturing.streams import STREAMS_ARE_EAGER, find_stream_use
from hostjit.capturing.traced_graph import source_location, storage_of

__all__ = [
    "PARTLY_IN_INFERENCE_MODE",
    "Inference",
    "Modes",
    "find_modes",
    "in_inference_mode",
    "settle_modes",
    "take_out_inference_mode",
]

PARTLY_IN_INFERENCE_MODE = (
    "a part of the call is computed in another inference mode than the rest; put all of it in "
    "torch.inference_mode(), or use torch.no_grad()"
)
_enter_inference_mode: Any = grad_mode._enter_inference_mode
_exit_inference_mode: Any = grad_mode._exit_inference_mode


class Inference(enum.Enum):
    """How a graph stands to inference mode."""

    AS_CALLED = "it can be computed in the mode of the caller"
    WHOLE = "all of it can be computed in inference mode, the caller is not in it"
    PARTLY = "parts of it have to be computed in different modes"


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


def settle_modes(module: torch.fx.GraphModule | None) -> Modes | None:
    """Take inference mode out of Dynamo's graph, and return what it does to modes.

    Raises CaptureError where the graph would have to be run in several modes or on several streams,
    or would not leave the thread's settings as an eager call does.
    """
    if module is None:
        return None
    setter = find_setter(module)
    if setter is not None:
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_PROGRAM, say_setter(setter), where=source_location(setter)
        )
    on_stream = find_stream_use(module.graph)
    if on_stream is not None:
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_PROGRAM,
            STREAMS_ARE_EAGER,
            where=source_location(on_stream),
        )
    modes = find_modes(module)
    split = modes.inference is Inference.PARTLY
    if split or (modes.inference is Inference.WHOLE and modes.changes_grad_mode):
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_PROGRAM,
            PARTLY_IN_INFERENCE_MODE,
            where=modes.where,
        )
    take_out_inference_mode(module, and_grad_mode=modes.inference is Inference.WHOLE)
    return modes


def find_modes(module: torch.fx.GraphModule) -> Modes:
    """Read the modes off of Dynamo's graph; the thread is in those of the caller."""
    called = inference = torch.is_inference_mode_enabled()
    grad = torch.is_grad_enabled()
    saved: dict[Any, tuple[bool, bool]] = {}
    seen: set[bool] = set()
    inside: set[torch.fx.Node] = set()
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
        elif computes(node):
            seen.add(inference)
            if inference:
                inside.add(node)
    where = next(map(source_location, saved), None)
    kind = Inference.AS_CALLED
    leaves = any(not node.args[0] for node in saved)
    if saved and seen - {called}:
        kind = Inference.WHOLE if seen == {True} else Inference.PARTLY
        if kind is Inference.PARTLY and not called and not leaves:
            kind = _as_one(module.graph, inside)
    return Modes(kind, grad != torch.is_grad_enabled(), leaves, where)


def _as_one(graph: torch.fx.Graph, inside: Set[torch.fx.Node]) -> Inference:
    """Tell in which mode a graph may be computed of which only `inside` is in inference mode.

    Results are inference tensors, or views of such, or they are not; what is on the way is
    nobody's, as long as the rest records no gradients and writes nothing that `inside` made, which
    is an error.
    """
    given: set[int | None] = set()
    made: dict[int | None, bool] = {}
    for node in graph.nodes:
        value = node.meta.get("example_value")
        if node.op == "placeholder":
            given.add(storage_of(value))
        elif node.op == "output":
            break
        elif node not in inside:
            written = (storage_of(x.meta.get("example_value")) for x in _written(node))
            if _requires_grad(value) or any(made.get(storage) for storage in written):
                return Inference.PARTLY
        for tensor in pytree.tree_leaves(value):
            made.setdefault(storage_of(tensor), node in inside)
    results = {storage_of(x.meta.get("example_value")) for x in graph.output_node().all_input_nodes}
    kinds = {made[storage] for storage in results - given - {None}}
    if len(kinds) > 1:
        return Inference.PARTLY
    return Inference.WHOLE if True in kinds else Inference.AS_CALLED


def _written(node: torch.fx.Node) -> Sequence[torch.fx.Node]:
    """Return the operands that a node may write."""
    if not may_write(node):
        return ()
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in ("copy_", "setitem", "__setitem__"):
        return node.all_input_nodes[:1]
    return node.all_input_nodes


def _requires_grad(value: Any) -> bool:
    tensors = (x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor))
    return any(tensor.requires_grad for tensor in tensors)


def take_out_inference_mode(module: torch.fx.GraphModule, *, and_grad_mode: bool = False) -> None:
    """Remove what enters and leaves inference mode: whoever calls the graph is in the right one.

    Gradients stay off where they were, unless `and_grad_mode`: then what switches them goes, too,
    as inference mode has none.
    """
    graph = module.graph
    entering = graph.find_nodes(op="call_function", target=_enter_inference_mode)
    if not entering:
        return
    grad = torch.is_grad_enabled()
    before: dict[torch.fx.Node, bool] = {}
    for node in list(graph.nodes):
        if node.target is torch._C._set_grad_enabled:
            grad = bool(node.args[0])
            if and_grad_mode:
                graph.erase_node(node)
        elif node.target is _enter_inference_mode:
            before[node], now = grad, not node.args[0]
            _switch_grad_mode(node, grad, now, and_grad_mode)
            grad = now
        elif node.target is _exit_inference_mode:
            now = before[node.args[0]]
            _switch_grad_mode(node, grad, now, and_grad_mode)
            grad = now
            graph.erase_node(node)
    for node in entering:
        graph.erase_node(node)
    module.recompile()


def _switch_grad_mode(node: torch.fx.Node, before: bool, now: bool, is_off: bool) -> None:
    if before != now and not is_off:
        with node.graph.inserting_before(node):
            node.graph.call_function(torch._C._set_grad_enabled, (now,))


def in_inference_mode(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs a compiled graph in inference mode."""

    def call(*inputs: Any) -> Any:
        with torch._C._InferenceMode(True):
            return run(*inputs)

    return call
