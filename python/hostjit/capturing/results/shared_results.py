# SPDX-License-Identifier: Apache-2.0
"""Results that share memory: the graph returns what they are views of, and a call makes the views.

The same goes for views of inputs that autograd has to know of.

One of the results may later be changed in place and get a gradient by it. Autograd then follows it
to the others, but knows only of views that it made itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.numbers.steps import Known, Operand, Steps
from hostjit.capturing.open_sizes import typical
from hostjit.capturing.overlap import overlaps_itself
from hostjit.capturing.results.outputs import (
    GraphOutput,
    Output,
    TupleOutput,
    ViewOutput,
    map_outputs,
)
from hostjit.capturing.traced_graph import source_location, storage_of

__all__ = [
    "ReturnedBases",
    "can_be_made",
    "every_result",
    "is_repeated",
    "same_objects",
    "share_memory",
    "shared_results",
    "view_of",
]

_autograd: Any = torch._C._autograd
_CreationMeta = _autograd.CreationMeta


def shared_results(graph: Graph) -> dict[int, list[Node]]:
    """Return the results that share memory with others, none that an input has, by storage."""
    of_inputs = {storage_of(_example(node)) for node in graph.find_nodes(op="placeholder")}
    groups: dict[int, list[Node]] = {}
    for node in graph.output_node().all_input_nodes:
        storage = storage_of(_example(node))
        if storage is not None and storage not in of_inputs:
            groups.setdefault(storage, []).append(node)
    return {storage: nodes for storage, nodes in groups.items() if len(nodes) > 1}


def share_memory(node: Node | None) -> CaptureError:
    """Return the error for results that share memory and stay so; `node` is one of them."""
    return CaptureError(
        CaptureFailure.NEEDS_AUTOGRAD,
        "results share memory, and gradients may be wanted of them",
        where=source_location(node) if node is not None else None,
        hint="call it under torch.no_grad() or torch.inference_mode()",
    )


class ReturnedBases:
    """A graph that returns, in place of views that share memory, what they are views of.

    Attributes:
        tensors: how each of its former results is made from what it returns now.
        output: how the result is rebuilt from that.
        changed: whether it returns something else.
        operands: numbers of the views that each call tells.
        views_of_inputs: whether some of what it returned were that.
    """

    def __init__(
        self,
        module: GraphModule,
        output: Output,
        steps: Steps,
        training: bool = False,
        inputs: Mapping[Node, torch.Tensor] | None = None,
    ) -> None:
        """Change the graph of `module`, Dynamo's, where that can be.

        Of results that are one object it returns one.

        Args:
            module: changed.
            output: how the result is rebuilt from what the graph returns.
            steps: how numbers of views are computed; others are added.
            training: results will be asked for gradients.
            inputs: the tensors that it takes, where a call is to make views of them.
        """
        self.tensors: tuple[Output, ...] = ()
        self.output = output
        self.changed = self.views_of_inputs = False
        self.operands: tuple[Operand, ...] = ()
        self._module = module
        node = module.graph.output_node()
        self._before: Any = node.args
        results: list[Any] = list(node.args[0])  # type: ignore[arg-type]
        is_recorded = torch.is_grad_enabled()
        same = same_objects(module.graph) if is_recorded else {}
        bases: dict[Node, Node] = {}
        for group in shared_results(module.graph).values() if is_recorded else ():
            found = _bases(module.graph, group)
            if found and not (training and all(map(_is_of_several, found))):
                bases |= found
        if inputs is not None and (training or not is_recorded):
            views = _views_of_inputs(module.graph, inputs)
            if not is_recorded and not any(_example(view).requires_grad for view in views):
                views = {}
            self.views_of_inputs = bool(views)
            bases |= views
        results = [same.get(result, result) for result in results]
        bases = {view: base for view, base in bases.items() if view not in same}
        if not (bases or same) or _twice(output, results, bases):
            self.views_of_inputs = False
            return
        kept = [*dict.fromkeys(result for result in results if result not in bases)]
        kept += dict.fromkeys(base for base in bases.values() if base not in kept)
        made = {
            view: _view_output(view, base, kept.index(base), steps) for view, base in bases.items()
        }
        self.operands = tuple(operand for view in made.values() for operand in view.operands())
        self.tensors = tuple(
            made[result] if result in made else GraphOutput(kept.index(result))
            for result in results
        )
        self.output = map_outputs(output, lambda leaf: self.tensors[leaf.index])
        self.changed = True
        node.args = (tuple(kept),)
        module.recompile()

    def undo(self) -> None:
        """Give the graph its results again."""
        self._module.graph.output_node().args = self._before
        self._module.recompile()


def _example(node: Node) -> Any:
    return node.meta.get("example_value")


def every_result(graph: Graph) -> Output:
    """Return the tuple of the results of a graph of Dynamo's."""
    results: Any = graph.output_node().args[0]
    return TupleOutput(tuple(map(GraphOutput, range(len(results)))))


def same_objects(graph: Graph) -> dict[Node, Node]:
    """Return results that are the same object as an earlier one, such as `x.float()` may be."""
    of_inputs = {id(_example(node)) for node in graph.find_nodes(op="placeholder")}
    firsts: dict[int, Node] = {}
    found: dict[Node, Node] = {}
    for node in graph.output_node().all_input_nodes:
        value = _example(node)
        if isinstance(value, torch.Tensor) and id(value) not in of_inputs:
            first = firsts.setdefault(id(value), node)
            if first is not node:
                found[node] = first
    return found


def _bases(graph: Graph, group: Sequence[Node]) -> dict[Node, Node]:
    """Return, for the views among these results, of what they are views; {} if that is unknown."""
    found: dict[Node, Node] = {}
    for node in group:
        value = _example(node)
        base = value._base
        if base is None:
            continue
        of = next((other for other in graph.nodes if _example(other) is base), None)
        if of is None:  # a tensor that an operator keeps to itself
            of = _origin(graph, storage_of(base))
        if of is None or not can_be_made(value, _example(of)):
            return {}
        if of is node:
            continue
        found[node] = of
    return found


def _origin(graph: Graph, storage: int | None) -> Node | None:
    """Return the node that all others with this storage are made of; None if there are several."""
    nodes = [node for node in graph.nodes if storage_of(_example(node)) == storage]
    origins = [node for node in nodes if not set(nodes).intersection(node.all_input_nodes)]
    return origins[0] if len(origins) == 1 else None


def _views_of_inputs(graph: Graph, tensors: Mapping[Node, torch.Tensor]) -> dict[Node, Node]:
    """Return the results that are views of inputs, and of which; {} if some are other ones."""
    by_storage: dict[int | None, list[Node]] = {}
    for node in tensors:
        by_storage.setdefault(storage_of(_example(node)), []).append(node)
    found: dict[Node, Node] = {}
    for node in graph.output_node().all_input_nodes:
        value = _example(node)
        bases = by_storage.get(storage_of(value), []) if node not in tensors else []
        if not bases:
            continue
        base, *others = bases
        is_view = value is not _example(base) and value._base is not None
        if others or not is_view or overlaps_itself(tensors[base]):
            return {}
        if not can_be_made(value, _example(base)):
            return {}
        found[node] = base
    return found


def can_be_made(view: torch.Tensor, base: torch.Tensor) -> bool:
    """Tell whether the view is one by strides."""
    return (
        (view.dtype, view.requires_grad) == (base.dtype, base.requires_grad)
        and view.layout == base.layout == torch.strided
        and not (view.is_conj() or view.is_neg())
        and _autograd._get_creation_meta(view) in _made_by_calls()
    )


def _made_by_calls() -> tuple[Any, ...]:
    """How views may have come to be that a call makes, in the mode of the call."""
    if torch.is_grad_enabled():
        return _CreationMeta.DEFAULT, _CreationMeta.MULTI_OUTPUT_NODE, _CreationMeta.NO_GRAD_MODE
    return _CreationMeta.DEFAULT, _CreationMeta.NO_GRAD_MODE, _CreationMeta.INFERENCE_MODE


def _is_of_several(node: Node) -> bool:
    return bool(_autograd._get_creation_meta(_example(node)) == _CreationMeta.MULTI_OUTPUT_NODE)


def view_of(view: torch.Tensor, base: torch.Tensor, index: int) -> ViewOutput:
    """Return how calls make a view, of known sizes, of what the graph returns at `index`."""
    return ViewOutput(
        items=(GraphOutput(index),),
        sizes=tuple(view.shape),
        strides=view.stride(),
        offset=int(view.storage_offset() - base.storage_offset()),
        made=_autograd._get_creation_meta(view),
        base_strides=base.stride(),
    )


def _view_output(view: Node, base: Node, index: int, steps: Steps) -> ViewOutput:
    value, whole = _example(view), _example(base)

    def number(found: int | torch.SymInt) -> int | Operand:
        operand = steps.operand(found)
        return int(operand.value) if isinstance(operand, Known) else operand

    strides = (0,) * value.dim() if _is_expansion(view, base) else value.stride()
    return ViewOutput(
        items=(GraphOutput(index),),
        sizes=tuple(map(number, value.shape)),
        strides=tuple(map(number, strides)),
        offset=number(value.storage_offset() - whole.storage_offset()),
        made=_autograd._get_creation_meta(value),
        base_strides=tuple(map(number, whole.stride())),
    )


def _is_expansion(view: Node, base: Node) -> bool:
    """Tell whether a view of a tensor without dims has strides of 0 only, as expansions have.

    Those of Dynamo's fake tensors are 1 in dims of one element. So the operators between the two
    are asked again, on the meta device.
    """
    if _example(base).dim() or not _example(view).dim():
        return False
    storage = storage_of(_example(base))
    models = {base: _model(base)}
    for node in base.graph.nodes:
        is_call = node.op in ("call_function", "call_method") and node is not base
        if is_call and storage in map(storage_of, tree_leaves(_example(node))):
            operands: Any = (node.args, node.kwargs)
            args, kwargs = map_arg(operands, lambda of: models[of] if of in models else _model(of))
            target: Any = node.target
            if node.op == "call_method":
                target, args = getattr(args[0], target), args[1:]
            models[node] = target(*args, **kwargs)
        if node is view:
            break
    return not any(models[view].stride())


def _model(node: Node) -> Any:
    """Its value in Dynamo's trace, with tensors on the meta device and sizes as they were."""

    def of(value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return typical(value)
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty([*map(typical, value.shape)], dtype=value.dtype, device="meta")

    return tree_map(of, _example(node))


def _twice(output: Output, results: Sequence[Any], views: dict[Node, Node]) -> bool:
    return is_repeated(output, lambda leaf: results[leaf.index], views)


def is_repeated(
    output: Output, result_of: Callable[[GraphOutput], Any], views: Container[Any]
) -> bool:
    """Tell whether a view is in the result at several places: there it is one object."""
    count: Counter[Any] = Counter()

    def look(leaf: GraphOutput) -> Output:
        count[result_of(leaf)] += 1
        return leaf

    map_outputs(output, look)
    return any(found > 1 and result in views for result, found in count.items())
