# SPDX-License-Identifier: Apache-2.0
"""Makes gradients of graphs that AOTAutograd splits as eager's are.

Its backward pass has no derivative. A second one is an error where it is asked of all that a result
depends on; `torch.autograd.grad(..., create_graph=True)` and then `grad` of some inputs leave out
what would come through the backward pass, without a word. And what a loss does not depend on gets
zeros, which an optimizer takes for a gradient, where eager gives None.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import Any

import torch
from torch._dynamo.eval_frame import skip_code
from torch._functorch import partitioners
from torch._functorch._aot_autograd.schemas import OutputType

from hostjit.capturing.gradients.second import (
    Again,
    draws_as_before,
    may_be_copied,
    second_derivatives,
    written_behind,
)
from hostjit.capturing.gradients.separate_parts import Parts, separate_parts
from hostjit.capturing.tracing import is_random

__all__ = ["EagerGradients"]

_Gradients = Sequence[torch.Tensor | None]
# The kinds of results that are made of no other result.
_OWN = (OutputType.non_alias, OutputType.unsafe_view_alias, OutputType.custom_function_view)
# Whether the graph is kept after this backward pass; torch 2.11 does not say.
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


class EagerGradients:
    """What the autograd.Function that AOTAutograd makes of one graph of Dynamo's lacks.

    Gradients with a graph of their own are computed by PyTorch's operators, anew from the inputs,
    which are kept for that until the backward pass.
    """

    def __init__(self, module: torch.fx.GraphModule, name: str) -> None:
        self._module = module
        self._name = name
        self._is_random = False
        self._draws_as_before = True
        self._written: frozenset[int] = frozenset()
        # By result and then by gradient: inputs that are written, on which it depends as they were.
        self._behind: list[frozenset[int]] = []
        self._inputs: list[Any] = []  # fake tensors
        self._num_results = 0
        self._num_tangents = 0
        self._reached: list[frozenset[int]] = []  # by gradient: the tangents that it is made of
        self._parts: Parts = ()
        self._needed_for: list[frozenset[int]] = []  # by input: the same of where it is taken

    def note_joint(self, graph: torch.fx.Graph, num_results: int) -> None:
        """Look at the graph of both passes: results, and then the gradients of the inputs."""
        self._is_random = is_random(graph)
        self._draws_as_before = draws_as_before(graph)
        placeholders = graph.find_nodes(op="placeholder")
        writes = graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
        targets = {node.args[0] for node in writes}
        self._written = frozenset(n for n, node in enumerate(placeholders) if node in targets)
        self._behind = written_behind(graph, self._written)
        self._inputs = [node.meta.get("val") for node in placeholders]
        self._num_results = num_results
        found: dict[torch.fx.Node, frozenset[int]] = {}
        self._num_tangents = 0
        for node in graph.nodes:
            found[node] = frozenset().union(*(found[operand] for operand in node.all_input_nodes))
            if node.op == "placeholder" and partitioners._is_tangent(node):
                found[node] = frozenset([self._num_tangents])
                self._num_tangents += 1
        inputs = [node for node in placeholders if not found[node]]
        tangents = [node for node in placeholders if found[node]]
        self._parts, _ = separate_parts(
            graph,
            {node: number for number, node in enumerate(tangents)},
            {node: number for number, node in enumerate(inputs)},
        )
        self._needed_for = _needed_for(graph, inputs, found)
        gradients: Any = graph.output_node().args[0]
        self._reached = [
            found[gradient] if isinstance(gradient, torch.fx.Node) else frozenset()
            for gradient in gradients[num_results:]
        ]

    @contextlib.contextmanager
    def of_what_is_compiled(self) -> Iterator[None]:
        """Extend the autograd.Function that is made meanwhile."""
        before = set(torch.autograd.Function.__subclasses__())
        yield
        for kind in torch.autograd.Function.__subclasses__():
            if kind not in before and hasattr(kind, "compiled_fw"):
                self._extend(kind)

    def _extend(self, kind: Any) -> None:
        forward, backward = kind.forward, kind.backward
        wanted = _tangents(kind.metadata)
        if len(wanted) != self._num_tangents:
            wanted = []
        copied = self._needed(wanted)
        again = self._again(kind.metadata, wanted, copied)
        name, reached, written = self._name, self._reached, self._written
        keeps_state = self._is_random and again is not None
        parts, needed_for = self._parts if wanted else (), self._needed_for
        is_boxed = getattr(kind, "boxed_grads_call", False)
        kind.metadata.bw_donated_idxs = []  # no program of hostjit's writes what was saved

        def keep_inputs(ctx: Any, *given: Any) -> Any:
            ctx.hostjit_inputs, ctx.hostjit_versions = given, _versions(given, written)
            if copied and again is not None:
                ctx.hostjit_inputs = [x.clone() if n in copied else x for n, x in enumerate(given)]
            ctx.hostjit_state = torch.get_rng_state() if keeps_state else None
            ctx.hostjit_kept = None
            if wanted:
                ctx.set_materialize_grads(False)
            return forward(ctx, *given)

        def as_eager(ctx: Any, *given: Any) -> Any:
            tangents = given[0] if is_boxed else given
            inputs = ctx.hostjit_inputs
            if torch.is_grad_enabled() or (again is not None and any(map(_is_batched, tangents))):
                if inputs is None:
                    raise RuntimeError(f"hostjit: the graph of '{name}' has been freed")
                if again is not None and _versions(inputs, written) == ctx.hostjit_versions:
                    arrived = [tangents[index] for index in wanted]
                    return tuple(again(inputs, arrived, ctx.hostjit_state))
                with torch.no_grad():
                    gradients = compute(ctx, tangents)
                return _Underivable.apply(name, gradients, *inputs)  # type: ignore[no-untyped-call]
            gradients = compute(ctx, tangents)
            if not _keeps_graph() and ctx.hostjit_kept is None:
                ctx.hostjit_inputs = None
            return gradients

        def compute(ctx: Any, tangents: _Gradients) -> _Gradients:
            arrived = {n for n, index in enumerate(wanted) if tangents[index] is not None}
            all_given = len(arrived) == len(wanted)
            given = tangents if all_given else _with_zeros(tangents, wanted, ctx._input_metadata)
            saved = ctx if not parts else _with_saved(ctx, parts, needed_for, arrived)
            gradients: _Gradients = backward(saved, given) if is_boxed else backward(saved, *given)
            if all_given or len(gradients) != len(reached):
                return gradients
            pairs = zip(gradients, reached, strict=True)
            return tuple(None if made and not made & arrived else found for found, made in pairs)

        for function in (keep_inputs, as_eager, compute, *_RUN_BY_AUTOGRAD):
            _skip(function.__code__)
        kind.forward = staticmethod(keep_inputs)
        kind.backward = staticmethod(as_eager)

    def _needed(self, wanted: Sequence[int]) -> frozenset[int]:
        """Return the inputs that are written, and on which gradients depend as they were before."""
        results = [self._behind[index] for index in wanted if index < self._num_results]
        return frozenset().union(*results, *self._behind[self._num_results :])

    def _again(self, metadata: Any, wanted: Sequence[int], copied: Collection[int]) -> Again | None:
        """Return what computes the gradients with a graph; None where the forward has effects.

        Args:
            metadata: AOTAutograd's.
            wanted: the results that have tangents.
            copied: the inputs that are given as they were before the call.
        """
        changes = any(
            info.mutates_metadata or (info.mutates_data and index not in self._written)
            for index, info in enumerate(metadata.input_info)
        )
        takes = len(self._module.graph.find_nodes(op="placeholder"))
        changes = changes or len(metadata.input_info) != takes  # views of one tensor, in its place
        views = any(
            info.requires_grad and info.output_type not in _OWN for info in metadata.output_info
        )
        if not self._draws_as_before or changes or views or not wanted:
            return None
        need = any(metadata.input_info[index].requires_grad for index in copied)
        if need or not may_be_copied([self._inputs[index] for index in copied]):
            return None
        return second_derivatives(self._module, wanted, self._written)


class _Kept:
    """What a backward pass of some results leaves for those of others.

    Autograd frees what a node has saved behind its first pass; eager has nodes of their own for
    results that it differentiates apart.

    Attributes:
        tensors: what was saved.
        done: the parts whose passes have run.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tensors
        self.done: set[int] = set()
        self._versions = list(map(_version, tensors))

    def check(
        self,
        parts: Set[int],
        arrived: Set[int],
        inputs: Sequence[Any],
        needed_for: Sequence[Set[int]],
    ) -> None:
        """Raise what eager raises where a pass of these parts can't run."""
        if not self.done.isdisjoint(parts):
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved "
                "tensors after they have already been freed). Saved intermediate values of the "
                "graph are freed when you call .backward() or autograd.grad(). Specify "
                "retain_graph=True if you need to backward through the graph a second time or if "
                "you need to access saved tensors after calling backward."
            )
        for tensor, version in zip(self.tensors, self._versions, strict=True):
            if _version(tensor) == version:
                continue
            needed = [
                results
                for given, results in zip(inputs, needed_for, strict=False)
                if isinstance(given, torch.Tensor) and given.data_ptr() == tensor.data_ptr()
            ]
            if not needed or not arrived.isdisjoint(frozenset().union(*needed)):
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: [{tensor.type()} {list(tensor.shape)}] is at version "
                    f"{tensor._version}; expected version {version} instead."
                )


class _WithSaved:
    """A ctx whose saved tensors are others'."""

    def __init__(self, ctx: Any, tensors: Sequence[torch.Tensor]) -> None:
        self._ctx = ctx
        self.saved_tensors = tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def maybe_clear_saved_tensors(self) -> None:
        """Leave them: another pass may want them."""


def _with_saved(ctx: Any, parts: Parts, needed_for: Sequence[Set[int]], arrived: Set[int]) -> Any:
    """Return a ctx that has what was saved, for a pass of the results that have arrived."""
    wanted = {n for n, part in enumerate(parts) if not arrived.isdisjoint(part)}
    kept: _Kept | None = ctx.hostjit_kept
    if kept is not None:
        kept.check(wanted, arrived, ctx.hostjit_inputs, needed_for)
    elif _keeps_graph() or len(wanted) == len(parts):
        return ctx
    else:
        kept = _Kept(ctx.saved_tensors)
    if not _keeps_graph():
        kept.done |= wanted
    ctx.hostjit_kept = kept if len(kept.done) < len(parts) else None
    return _WithSaved(ctx, kept.tensors)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _is_batched(tangent: Any) -> bool:
    """Tell whether a gradient stands for many, which PyTorch's operators take."""
    if not isinstance(tangent, torch.Tensor):
        return False
    of_functions: Any = torch._C._functorch
    is_known = of_functions.is_batchedtensor(tangent)
    return bool(is_known or of_functions.is_legacy_batchedtensor(tangent))


_RUN_BY_AUTOGRAD = (
    *(_is_batched, _with_saved, _version),
    *(_Kept.__init__, _Kept.check),
    *(_WithSaved.__init__, _WithSaved.__getattr__, _WithSaved.maybe_clear_saved_tensors),
)


def _needed_for(
    graph: torch.fx.Graph,
    inputs: Sequence[torch.fx.Node],
    made_of: Mapping[torch.fx.Node, frozenset[int]],
) -> list[frozenset[int]]:
    """Return for each input which gradients of results meet it, or a view of it."""
    behind = {node: number for number, node in enumerate(inputs)}
    found = [frozenset[int]() for _ in inputs]
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        operands = [operand for operand in node.all_input_nodes if operand in behind]
        schema = getattr(node.target, "_schema", None)
        if operands and schema and any(x.alias_info is not None for x in schema.returns):
            behind[node] = behind[operands[0]]
        for operand in operands:
            found[behind[operand]] |= made_of[node]
    return found


def _tangents(metadata: Any) -> list[int]:
    """Return which results of the function have tangents; none where inputs are results, too."""
    if metadata.num_mutated_inp_runtime_indices:
        return []
    results = metadata.output_info
    bases = range(len(results), len(results) + metadata.num_intermediate_bases)
    own = [n for n, info in enumerate(results) if info.requires_grad and info.output_type in _OWN]
    return [*own, *bases]


class _Underivable(torch.autograd.Function):
    """Gradients as they are, of which another derivative is an error."""

    @staticmethod
    def forward(ctx: Any, name: str, gradients: Sequence[Any], *inputs: Any) -> Any:
        ctx.name = name
        return tuple(gradients)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(
            f"hostjit: second derivatives of '{ctx.name}' are not possible: its forward draws "
            "random numbers on another device or by an operator of another library, changes "
            "tensors that are large or need gradients, or returns views, or an input was changed "
            "since. Call the original function where you need them"
        )


def _with_zeros(tangents: _Gradients, wanted: Sequence[int], results: Any) -> list[Any]:
    """Put zeros in the places of tangents that have not arrived."""
    given: list[Any] = list(tangents)
    for index in wanted:
        if given[index] is None:
            like = results[index]
            given[index] = torch.zeros(like.shape, dtype=like.dtype, device=like.device)
    return given


def _versions(inputs: Sequence[Any], written: Collection[int]) -> list[int]:
    """Return the versions of what the function does not write itself."""
    tensors = [x for n, x in enumerate(inputs) if n not in written and isinstance(x, torch.Tensor)]
    return [x._version for x in tensors if not x.is_inference()]


def _skip(code: types.CodeType) -> None:
    """Have Dynamo not look at this code, which may run between two graphs."""
    skip_code(code)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            _skip(inner)


for _function in (_Underivable.forward, _with_zeros, _versions):
    _skip(_function.__code__)
