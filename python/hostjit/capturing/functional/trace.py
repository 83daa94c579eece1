# SPDX-License-Identifier: Apache-2.0
"""From Dynamo's torch-level graph to a functional graph of ATen operators.

The graph is interpreted below autograd with PyTorch's own functionalisation over fake tensors, and
what reaches the dispatcher is recorded. Below autograd the dispatcher hands composite operators to
the modes undecomposed, so that those in `KEPT_OPERATORS` stay one node; the others decompose as
they do in eager mode. Random operators stay in order. In-place work on inputs becomes functional
work and a trailing `aten.copy_(input, new)`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._higher_order_ops.auto_functionalize import (
    auto_functionalized_v2,
    auto_functionalized_v2_dense,
)
from torch._ops import HigherOrderOperator
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from hostjit.capturing.control_flow.operators import Region, trace_higher_order
from hostjit.capturing.decompositions.draws_in_place import draws_in_order
from hostjit.capturing.decompositions.dropout import dropout_as_eager
from hostjit.capturing.decompositions.interpolation import interpolation_in_one
from hostjit.capturing.decompositions.table import Decompositions
from hostjit.capturing.decompositions.writes_in_order import writes_in_order
from hostjit.capturing.dynamic_dims import is_number, is_symbolic
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.failures import DATA_DEPENDENT, translate_failure
from hostjit.capturing.functional.composite_autocast import CompositeAutocast
from hostjit.capturing.functional.eager_derivatives import eager_derivatives
from hostjit.capturing.functional.empty_tensors import decide_emptiness
from hostjit.capturing.functional.fake_inputs import fake_inputs
from hostjit.capturing.functional.graph_writes import refuse_writes_through_unfold
from hostjit.capturing.functional.hidden_writes import (
    batch_norms_hide_writes,
    hide_writes,
    is_hidden,
    mark_hidden,
)
from hostjit.capturing.functional.open_composites import composites_of_open_sizes
from hostjit.capturing.functional.open_powers import powers_of_open_numbers
from hostjit.capturing.functional.recorded_nodes import Made, RecordedNodes
from hostjit.capturing.functional.recorder import record
from hostjit.capturing.functional.recurrent_dropout import dropout_between_layers
from hostjit.capturing.functional.recurrent_networks import KEPT_ON_CUDA, recurrent_networks_known
from hostjit.capturing.functional.result_types import correct_result_types
from hostjit.capturing.functional.triton_launches import is_triton_launch, trace_triton_launch
from hostjit.capturing.functional.written_types import check_written_types
from hostjit.capturing.numbers import open_draws, open_dropout
from hostjit.capturing.numbers.open_indices import get_item, set_item
from hostjit.capturing.open_sizes import all_equal, known
from hostjit.capturing.operand_devices import on_cuda
from hostjit.capturing.overlap import counts_from_storage, inputs_counted_from, refuse_overlap
from hostjit.capturing.python_kernels import Kernels, python_kernels_changed
from hostjit.capturing.traced_graph import (
    attribute_of,
    check_aliasing,
    check_targets,
    lift_constants,
    remove_dead_nodes,
    rename_placeholders,
    source_location,
    storage_of,
)

__all__ = ["KEPT_OPERATORS", "FunctionalGraph", "trace_functional"]

aten = torch.ops.aten

# Composite operators that stay one node.
KEPT_OPERATORS: tuple[torch._ops.OpOverload, ...] = (aten.linear.default,)


@dataclasses.dataclass
class FunctionalGraph:
    """A functional ATen graph.

    Attributes:
        graph_module: placeholders in the order of `inputs`; the output is a flat tuple.
        inputs: the live tensors and numbers behind the placeholders: Dynamo's, then lifted
            constants.
        dynamo_input_count: how many of the inputs are Dynamo's.
        mutated: positions of the inputs that a call writes: the graph by a trailing `aten.copy_`,
            or autograd, see `Backward.updated`.
        unshifted: positions of the inputs whose first element has to be that of their storage.
    """

    graph_module: torch.fx.GraphModule
    inputs: list[Any]
    dynamo_input_count: int
    mutated: tuple[int, ...]
    unshifted: tuple[int, ...] = ()


def trace_functional(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    fake_mode: Any,
    *,
    checks_offsets: bool = False,
    made: Mapping[torch.fx.Node, Made] | None = None,
) -> FunctionalGraph:
    """Trace `module` to a functional ATen graph.

    Args:
        module: the graph, of operators that PyTorch's Python code or the dispatcher calls.
        inputs: the live tensors that it takes, and symbolic numbers.
        fake_mode: of the trace.
        checks_offsets: some inputs may have to be `unshifted`, which raises CaptureError otherwise.
        made: what nodes have returned in eager mode, of a graph that was recorded.
    """
    for value in inputs:
        if not isinstance(value, torch.Tensor) and not is_number(value):
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                f"the program takes a {type(value).__qualname__} that is computed for each call",
                hint="pass it as a tensor, or as a constant that does not change",
            )
    refuse_writes_through_unfold(module.graph)
    check_written_types(module.graph)
    hide_writes(module)
    attributes = _tensor_attributes(module)
    live = [*inputs, *attributes.values()]
    fakes = fake_inputs(module, fake_mode, inputs)
    fakes += [fake_mode.from_tensor(tensor, static_shapes=True) for tensor in attributes.values()]
    symbolic = any(is_number(fake) or is_symbolic(fake) for fake in fakes)
    recorded = None
    if made and not symbolic:
        recorded = RecordedNodes(module.graph, made, fakes, fake_mode)
    recipe = _Recipe(module, len(inputs), list(attributes), fake_mode, recorded)
    with (
        enable_python_dispatcher() if symbolic else contextlib.nullcontext(),
        _kept_whole(),
        recurrent_networks_known(),
        interpolation_in_one(),
        composites_of_open_sizes(),
        powers_of_open_numbers(),
        eager_derivatives(),
        batch_norms_hide_writes(),
        dropout_as_eager(),
        draws_in_order(),
        writes_in_order(),
        torch._C._AutoDispatchBelowAutograd(),
    ):
        traced = record(recipe, fakes, fake_mode)
    if recipe.unshifted and not checks_offsets:
        raise counts_from_storage()
    mark_hidden(traced.graph, recipe.hidden)
    refuse_overlap(live, recipe.mutated)
    live.extend(_finish(traced, recipe))
    rename_placeholders(traced, module)
    traced.recompile()
    return FunctionalGraph(
        traced, live, len(inputs), tuple(recipe.mutated), tuple(recipe.unshifted)
    )


def _finish(traced: torch.fx.GraphModule, recipe: _Recipe) -> list[torch.Tensor]:
    """Check and tidy a fresh trace; return what its last placeholders are for, its constants."""
    constants = lift_constants(traced)
    correct_result_types(traced.graph)
    check_targets(traced)
    check_aliasing(traced, recipe.output_storages)
    remove_dead_nodes(traced.graph)
    decide_emptiness(traced.graph)
    open_dropout.to_pytorch(traced.graph)
    open_draws.to_pytorch(traced.graph)
    return constants


def _trace_region(
    module: torch.fx.GraphModule, operands: Sequence[torch.Tensor], fake_mode: Any
) -> Region:
    """Trace a region of a higher-order operator, while the graph around it is being traced."""
    attributes = _tensor_attributes(module)
    recipe = _Recipe(module, len(operands), list(attributes), fake_mode)
    with _disable_current_modes():
        with fake_mode:
            fakes = [fake_mode.from_tensor(tensor) for tensor in attributes.values()]
        traced = record(recipe, [*operands, *fakes], fake_mode)
    constants = [*attributes.values(), *_finish(traced, recipe)]
    return Region(traced, constants, tuple(recipe.mutated))


class _Recipe:
    """The function that is traced: interpret on functional tensors, then give back plain ones."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        count: int,
        attributes: list[str],
        fake_mode: Any,
        recorded: RecordedNodes | None = None,
    ) -> None:
        self._module = module
        self._recorded = recorded
        self._fake_mode = fake_mode
        self._count = count
        self._attributes = attributes
        self.mutated: list[int] = []
        self.hidden: list[int] = []  # of those, what eager hides from autograd
        self.unshifted: list[int] = []
        self.output_storages: list[int | None] = []

    def __call__(self, *args: Any) -> list[Any]:
        with FunctionalTensorMode():
            wrapped: list[Any] = [
                arg if is_number(arg) else FunctionalTensor.to_functional(arg) for arg in args
            ]
            attributes = dict(zip(self._attributes, wrapped[self._count :], strict=False))
            interpreter = _Interpreter(self._module, attributes, self._fake_mode, self._recorded)
            scan = functools.partial(interpreter.call_function, torch.ops.higher_order.scan)
            decompositions = Decompositions(scan, interpreter.autocast)
            with dropout_between_layers(), decompositions:
                results = interpreter.run(*wrapped[: self._count])
            if isinstance(results, torch.Tensor):  # of a region with one
                results = [results]
            outputs = [self._unwrap(result) for result in results]
            self.output_storages = [storage_of(result) for result in results]
            self.mutated = [index for index, value in enumerate(wrapped) if self._is_mutated(value)]
            self.hidden = [index for index in self.mutated if is_hidden(wrapped[index])]
            views = decompositions.strided_views
            self.unshifted = inputs_counted_from(views, wrapped, is_written=bool(self.mutated))
            news = [self._unwrap(wrapped[index]) for index in self.mutated]
        for index, new in zip(self.mutated, news, strict=True):
            aten.copy_.default(args[index], new)
        return self._restore_aliases(args, wrapped, results, outputs)

    def _restore_aliases(
        self,
        args: Sequence[torch.Tensor],
        wrapped: Sequence[Any],
        results: Sequence[Any],
        outputs: list[Any],
    ) -> list[Any]:
        """Return inputs as such, and views of written inputs as views of what was written."""
        written = {storage_of(wrapped[index]): index for index in self.mutated}
        for position, result in enumerate(results):
            same = [index for index, value in enumerate(wrapped) if value is result]
            before = [index for index in range(position) if results[index] is result]
            if same:
                outputs[position] = args[same[0]]
            elif before:
                outputs[position] = outputs[before[0]]
            elif isinstance(result, torch.Tensor) and storage_of(result) in written:
                base = args[written[storage_of(result)]]
                if base.dtype != result.dtype:
                    raise CaptureError(
                        CaptureFailure.UNSUPPORTED_PROGRAM,
                        "a result is a view with another dtype of an input that the call changes",
                        hint="return a clone of it",
                    )
                now = self._unwrap(wrapped[written[storage_of(result)]])
                outputs[position] = _view_of_written(base, now, self._unwrap(result))
        return outputs

    @staticmethod
    def _unwrap(value: Any) -> Any:
        if not isinstance(value, FunctionalTensor):
            return value
        torch._sync(value)
        return torch._from_functional_tensor(value.elem)

    @staticmethod
    def _is_mutated(value: Any) -> bool:
        if not isinstance(value, FunctionalTensor):
            return False
        element = value.elem
        if torch._functionalize_has_metadata_mutation(
            element
        ) or torch._functionalize_was_storage_changed(element):
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                "the call changes the sizes, strides or storage of an input",
                hint="change a view of it, or a clone",
            )
        return bool(torch._functionalize_has_data_mutation(element))  # type: ignore[attr-defined]


def _view_of_written(base: torch.Tensor, now: torch.Tensor, view: torch.Tensor) -> Any:
    """Return the view of an input that a view of what was computed for it stands for.

    `now` is what was computed, and has the layout and the offset of a new tensor.
    """
    if _same_strides(now, base):
        offset = view.storage_offset() - now.storage_offset() + base.storage_offset()
        return aten.as_strided.default(base, view.shape, view.stride(), offset)
    is_whole = all_equal(view.shape, now.shape) and _same_strides(view, now)
    if is_whole and known(view.storage_offset() == now.storage_offset()):
        return aten.as_strided.default(base, base.shape, base.stride(), base.storage_offset())
    raise CaptureError(
        CaptureFailure.UNSUPPORTED_PROGRAM,
        "a result is a view of an input that the call changes and whose elements lie apart",
        hint="return a clone of it, or pass a contiguous tensor",
    )


def _same_strides(left: torch.Tensor, right: torch.Tensor) -> bool:
    triples = zip(left.shape, left.stride(), right.stride(), strict=True)
    return all(known(size == 1) or known(one == other) for size, one, other in triples)


class _Interpreter(torch.fx.Interpreter):
    def __init__(
        self,
        module: torch.fx.GraphModule,
        attributes: dict[str, Any],
        fake_mode: Any,
        recorded: RecordedNodes | None = None,
    ) -> None:
        super().__init__(module)
        self._recorded = recorded
        self.extra_traceback = False  # in messages: errors are given the user's line below
        self._tensor_attributes = attributes
        self._fake_mode = fake_mode
        self.autocast = CompositeAutocast()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self._input_storages = [*map(storage_of, (*args, *self._tensor_attributes.values()))]
        return super().run(*args, **kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in self._tensor_attributes:
            return self._tensor_attributes[target]
        return super().get_attr(target, args, kwargs)

    def run_node(self, node: torch.fx.Node) -> Any:
        recorded = self._recorded
        if recorded is not None:
            if node in recorded:
                recorded.write(node, self.env)
                return None
            for operand in node.all_input_nodes:
                if self.env[operand] is None and operand in recorded:
                    self.env[operand] = recorded.value(operand)
        self.autocast.note()
        try:
            return super().run_node(node)
        except CaptureError as error:
            failure = error
        except DATA_DEPENDENT as error:
            failure = translate_failure(error)
        where = failure.where or source_location(node)
        raise CaptureError(
            failure.failure, failure.what, where=where, hint=failure.hint
        ) from failure

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is operator.getitem:
            return get_item(*args)
        if target is operator.setitem:
            return set_item(*args)
        if not isinstance(target, HigherOrderOperator):
            return super().call_function(target, args, kwargs)

        if target is auto_functionalized_v2:  # of AOTAutograd: clones, and a call that writes them
            return auto_functionalized_v2_dense(*args, **kwargs)
        if is_triton_launch(target):
            return trace_triton_launch(target, kwargs, self._input_storages)

        def trace(module: torch.fx.GraphModule, operands: Sequence[torch.Tensor]) -> Region:
            return _trace_region(module, operands, self._fake_mode)

        return trace_higher_order(target, args, trace, self._inline, self._fake_mode)

    def _inline(self, module: torch.fx.GraphModule, operands: Sequence[Any]) -> Any:
        """Run a region as a part of this graph."""
        part = _Interpreter(module, {}, self._fake_mode)
        part._input_storages, part.autocast = self._input_storages, self.autocast
        return super(_Interpreter, part).run(*operands)


def _kept_whole() -> contextlib.AbstractContextManager[None]:
    """Make `decompose()` of composite operators that stay one node decline."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    kernels: dict[torch._ops.OpOverload, Kernels] = {}
    for op in (*KEPT_OPERATORS, *KEPT_ON_CUDA):
        decompose = op.py_kernels.get(key, functools.partial(op._op_dk, key))
        kernels[op] = {key: functools.partial(_decline, op, decompose)}
    return python_kernels_changed(kernels)


def _decline(op: torch._ops.OpOverload, decompose: Any, *args: Any, **kwargs: Any) -> Any:
    """Say that an operator has no decomposition, but to the fake tensors that compute its result.

    With open sizes those look for it too.
    """
    is_kept = op in KEPT_OPERATORS or on_cuda(args)
    if torch._C._meta_in_tls_dispatch_include() or not is_kept:
        return decompose(*args, **kwargs)
    return NotImplemented


def _tensor_attributes(module: torch.fx.GraphModule) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = attribute_of(module, node.target)
            if isinstance(value, torch.Tensor):
                found[node.target] = value
    return found
