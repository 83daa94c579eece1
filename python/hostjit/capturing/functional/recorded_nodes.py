# SPDX-License-Identifier: Apache-2.0
"""Operators of recorded graphs that are in the functional graph as they are.

Functionalisation over fake tensors takes about a millisecond for each operator. Of one that was
recorded its result is known, as eager made it. If nothing writes to the memory of its result, and
nothing takes the operator apart, the functional graph has the very same call.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import (
    get_proxy_mode,
    get_proxy_slot,
    track_tensor_tree,
)
from torch.utils._python_dispatch import _pop_mode_temporarily
from torch.utils._pytree import tree_map

from hostjit.capturing.decompositions.eager_strides import has_other_strides
from hostjit.capturing.decompositions.table import is_taken_apart
from hostjit.capturing.functional.graph_writes import written_nodes

__all__ = ["Made", "RecordedNodes"]

aten = torch.ops.aten
Node = torch.fx.Node


@dataclasses.dataclass(frozen=True)
class Made:
    """A tensor without its elements, as an operator returned it in eager mode."""

    storage: int
    dtype: torch.dtype
    device: torch.device
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int

    @staticmethod
    def of(tensor: torch.Tensor) -> Made | None:
        """Describe a tensor; None for one that is more than this says."""
        is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
        if not is_plain or tensor.layout is not torch.strided or tensor.is_quantized:
            return None
        if tensor.dtype.is_complex or tensor.is_neg() or tensor.is_meta:
            return None
        return Made(
            tensor.untyped_storage()._cdata,
            tensor.dtype,
            tensor.device,
            tensor.shape,
            tensor.stride(),
            int(tensor.storage_offset()),
        )


class RecordedNodes:
    """The nodes of a graph that are in the functional graph as they are, and their results."""

    def __init__(
        self,
        graph: torch.fx.Graph,
        made: Mapping[Node, Made],
        inputs: Sequence[FakeTensor],
        fake_mode: FakeTensorMode,
    ) -> None:
        """Find them.

        Args:
            graph: without open sizes or numbers.
            made: what nodes have returned, and what placeholders stand for.
            inputs: what the placeholders are given.
            fake_mode: of these, and of results.
        """
        self._fakes = dict(_Results(graph, made, fake_mode).found(inputs))
        self._made: dict[Node, Node] = {}
        self._tracer: Any = None

    def __contains__(self, node: Node) -> bool:
        return node in self._fakes

    def write(self, node: Node, values: dict[Node, Any]) -> None:
        """Write a node into the graph that is traced.

        Args:
            node: one of these nodes.
            values: what the others have come to.
        """
        self._tracer = mode.tracer if (mode := get_proxy_mode()) is not None else None

        def written(operand: Node) -> Node:
            found = self._made.get(operand)
            return _node_of(values[operand], self._tracer) if found is None else found

        args = torch.fx.map_arg(node.args, written)
        kwargs = torch.fx.map_arg(node.kwargs, written)
        assert not isinstance(node.target, str)
        made = self._tracer.graph.call_function(node.target, args, kwargs)
        made.meta = {**node.meta, "val": self._fakes[node]}
        self._made[node] = made

    def value(self, node: Node) -> Any:
        """Return the result of one that was written, as what takes others apart has it."""
        fake, proxy = self._fakes[node], torch.fx.Proxy(self._made[node], self._tracer)
        track_tensor_tree(fake, proxy, constant=None, tracer=self._tracer)
        with _pop_mode_temporarily():  # of decompositions
            return tree_map(FunctionalTensor.to_functional, fake)


def _node_of(value: torch.Tensor, tracer: Any) -> Node:
    with _pop_mode_temporarily():  # of decompositions
        if isinstance(value, FunctionalTensor):
            torch._sync(value)
            value = torch._from_functional_tensor(value.elem)
        found = get_proxy_slot(value, tracer)
    return found.proxy.node


class _Results:
    """Finds nodes that are in the functional graph as they are, and makes fake results."""

    def __init__(
        self, graph: torch.fx.Graph, made: Mapping[Node, Made], mode: FakeTensorMode
    ) -> None:
        self._graph = graph
        self._made = made
        self._mode = mode
        # Tensors on the device "meta", and lists of such.
        self._plain: dict[Node, Any] = {}
        self._shared = _shared_storages(graph, made)

    def found(self, inputs: Sequence[FakeTensor]) -> Iterator[tuple[Node, Any]]:
        """Yield the nodes and the results. `inputs`: what the placeholders are given."""
        if self._shared is None:
            return
        self._note_inputs(inputs)
        for node in self._graph.nodes:
            plain = self._result(node) if node.op == "call_function" else None
            if plain is not None:
                self._plain[node] = plain
                fake = functools.partial(FakeTensor, self._mode, device=self._device(node))
                yield node, tree_map(fake, plain)

    def _note_inputs(self, inputs: Sequence[FakeTensor]) -> None:
        placeholders = self._graph.find_nodes(op="placeholder")
        with in_kernel_invocation_manager(self._mode):
            for node, fake in zip(placeholders, inputs, strict=False):
                made = self._made.get(node)
                layout = fake.shape, fake.stride(), fake.storage_offset()
                if made is not None and layout == (made.shape, made.stride, made.offset):
                    self._plain[node] = fake.detach()

    def _device(self, node: Node) -> torch.device:
        """Return the device of a result, or of what a list of views is of."""
        made = self._made.get(node)
        return self._device(node.args[0]) if made is None else made.device  # type: ignore[arg-type]

    def _result(self, node: Node) -> Any:
        """Return the result of a node on the device "meta"; None for one that is looked at."""
        assert self._shared is not None
        made = self._made.get(node)
        is_own = made is not None and made.storage not in self._shared
        base: Any = node.args[0] if node.args else None
        of_base = self._plain.get(base) if isinstance(base, Node) else None
        target = node.target
        if target is operator.getitem:
            return of_base[node.args[1]] if of_base is not None and is_own else None
        kind = _kind_of(target) if isinstance(target, OpOverload) else None
        operands = [self._made.get(each) for each in node.all_input_nodes]
        if kind is None or None in operands:
            return None
        storages = {each.storage for each in operands if each is not None}
        if kind == "views":
            if of_base is None or not storages.isdisjoint(self._shared):
                return None
            return list(target(of_base, *node.args[1:], **node.kwargs))  # type: ignore[operator]
        if made is None or not is_own or has_other_strides(target, made.shape):
            return None
        if kind == "view":
            if of_base is None or made.storage not in storages:
                return None
            return of_base.as_strided(made.shape, made.stride, made.offset)
        if made.offset or made.storage in storages:
            return None
        if target is aten.pow.Tensor_Scalar and made.dtype is torch.bool:
            return None
        return torch.empty_strided(made.shape, made.stride, dtype=made.dtype, device="meta")


def _shared_storages(graph: torch.fx.Graph, made: Mapping[Node, Made]) -> set[int] | None:
    """Return the memory that is written, or that several results have or the inputs.

    None where it is not known.
    """
    found: set[int] = set()
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module", "call_method"):
            return None
        is_call = isinstance(node.target, OpOverload)
        for operand in written_nodes(node) if is_call else ():
            if operand not in made:
                return None
            found.add(made[operand].storage)
    known = (*graph.output_node().all_input_nodes, *graph.find_nodes(op="placeholder"))
    count = collections.Counter(made[each].storage for each in known if each in made)
    return found | {storage for storage, times in count.items() if times > 1}


# Besides pointwise operators.
_COMPUTING = frozenset(
    {
        *(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim),
        *(aten.amax.default, aten.amin.default, aten.max.default, aten.min.default),
        *(aten.all.default, aten.any.default, aten.prod.default, aten.cumsum.default),
        *(aten.mm.default, aten.addmm.default, aten.bmm.default, aten.mv.default, aten.dot.default),
        *(aten.cat.default, aten.stack.default, aten.clone.default, aten._to_copy.default),
        *(aten._softmax.default, aten._log_softmax.default),
        *(aten.zeros_like.default, aten.ones_like.default, aten.full_like.default),
        *(aten.zeros.default, aten.ones.default, aten.full.default),
        *(aten.slice_backward.default, aten.select_backward.default),
    }
)
_VIEWS = frozenset(
    {
        *(aten.view.default, aten.select.int, aten.slice.Tensor, aten.expand.default),
        *(aten.t.default, aten.transpose.int, aten.permute.default),
        *(aten.unsqueeze.default, aten.squeeze.dim, aten.detach.default),
    }
)
_SEVERAL_VIEWS = frozenset({aten.unbind.int, aten.split.Tensor, aten.split_with_sizes.default})


@functools.cache
def _kind_of(func: OpOverload) -> str | None:
    """Tell whether an operator computes, or returns views; None for one that is looked at."""
    if func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
        return None
    if func.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd):
        return None
    if is_taken_apart(func) and func is not aten.pow.Tensor_Scalar:  # the latter of bools alone
        return None
    if func in _VIEWS or func in _SEVERAL_VIEWS:
        return "view" if func in _VIEWS else "views"
    returns = func._schema.returns
    is_single = len(returns) == 1 and str(returns[0].type) == "Tensor"
    computes = torch.Tag.pointwise in func.tags or func in _COMPUTING
    is_new = is_single and returns[0].alias_info is None
    return "new" if computes and is_new and func.namespace == "aten" else None
