# SPDX-License-Identifier: Apache-2.0
"""Which recorded passes of loops one program can run, and compute ahead."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from hostjit.capturing.functional.trace import FunctionalGraph
from hostjit.capturing.traced_graph import storage_of
from hostjit.capturing.tracing import is_random
from hostjit.recording.code.handlers import may_raise
from hostjit.recording.graph.places import is_in_range
from hostjit.recording.graph.recorder import Read, Recorder
from hostjit.recording.programs.results import Results

__all__ = ["may_raise_ahead", "may_repeat"]

aten = torch.ops.aten


def may_repeat(functional: FunctionalGraph, recorder: Recorder, results: Results) -> bool:
    """Tell whether a pass does nothing but compute and decide.

    Args:
        functional: the graph of the pass.
        recorder: of the pass.
        results: of the pass.
    """
    return (
        all(map(_is_decision, recorder.reads))
        and not (results.assignments or results.stores or results.in_inference_mode)
        and not (recorder.draws or recorder.used or recorder.handled)
        and _are_apart(recorder, results)
        and _computes_alone(functional)
    )


def _is_decision(read: Read) -> bool:
    """Whether a value that was read is one that `==` compares by its bits, and not a size."""
    expected = read.expected
    is_exact = not (expected.is_floating_point() or expected.is_complex())
    return is_exact and expected.numel() == 1 and not read.is_size


def _are_apart(recorder: Recorder, results: Results) -> bool:
    """Whether no results share memory, with each other or with inputs; but for numbers."""
    found = [storage_of(source.tensor) for source in recorder.sources]
    numbers = [source.tensor for source in recorder.opened]
    for tensor in results.tensors:
        if any(tensor is number for number in numbers):
            continue
        if storage_of(tensor) in found:
            return False
        found.append(storage_of(tensor))
    return True


def _computes_alone(functional: FunctionalGraph) -> bool:
    """Whether a graph computes on the CPU, by operators without effects but writes at its end.

    Where there are such, Python can't run a pass instead of one that is computed ahead and raises.
    """
    graph = functional.graph_module.graph
    if is_random(graph) or not all(map(_is_known, graph.nodes)):
        return False
    return not functional.mutated or not may_raise_ahead(graph)


def may_raise_ahead(graph: Graph) -> bool:
    """Tell whether a pass that is computed ahead may raise."""
    return any(map(_may_raise, graph.nodes))


def _is_known(node: Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        return False
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.target is operator.getitem
    if node.target is aten.copy_.default:
        written: Any = node.args[0]
        return bool(written.op == "placeholder") and not node.users
    return node.target.namespace == "aten" and not node.target._schema.is_mutable


def _may_raise(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or is_in_range(node):
        return False
    operands = torch.fx.node.map_arg(node.args, lambda found: found.meta["val"])
    return may_raise(node.target, operands, node.kwargs)
