# SPDX-License-Identifier: Apache-2.0
"""One call of Dynamo: from a callable and its arguments to a torch-level graph and bytecode."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo
from torch._dynamo import convert_frame
from torch._dynamo.eval_frame import skip_code
from torch._dynamo.utils import dynamo_timed, get_metrics_context
from torch._dynamo.variables.torch_function import torch_function_mode_stack_state_mgr

from hostjit import _C
from hostjit.capturing.by_fields import NONE_BY_FIELDS, ByFields
from hostjit.capturing.control_flow.floats_in_regions import regions_take_floats
from hostjit.capturing.decompositions.attention import eager_attention_path
from hostjit.capturing.dynamic_dims import is_number
from hostjit.capturing.dynamo.breaks import (
    Breaks,
    Continuation,
    resumable,
    stopping_at_breaks,
    with_resumed,
)
from hostjit.capturing.dynamo.corrections import corrected
from hostjit.capturing.dynamo.entry import TARGET_NAME, make_entry
from hostjit.capturing.dynamo.enum_members import noting_members
from hostjit.capturing.dynamo.field_reads import FieldReads, noting_field_reads
from hostjit.capturing.dynamo.growing_lengths import stopping_at_lengths
from hostjit.capturing.dynamo.growing_lists import following_growth
from hostjit.capturing.dynamo.guard_lives import guards_are_free
from hostjit.capturing.dynamo.guarded_results import guarding_results
from hostjit.capturing.dynamo.identities import Identity, noting_identities
from hostjit.capturing.dynamo.installed_names import GRAPH, OF_ONE_CAPTURE
from hostjit.capturing.dynamo.logged_numbers import logging_numbers
from hostjit.capturing.dynamo.long_loops import stopping_at_long_loops
from hostjit.capturing.dynamo.many_numbers import stopping_at_many_numbers
from hostjit.capturing.dynamo.module_hooks import stopping_at_backward_hooks
from hostjit.capturing.dynamo.numpy_code import NumbersOfNumpy, stopping_at_numpy
from hostjit.capturing.dynamo.open_strides import strides_known
from hostjit.capturing.dynamo.optimizer_steps import stopping_at_steps
from hostjit.capturing.dynamo.places import with_places_as_data
from hostjit.capturing.dynamo.python_methods import stopping_at_python_methods
from hostjit.capturing.dynamo.recurrent_steps import skipping_steps
from hostjit.capturing.dynamo.size_environments import let_go
from hostjit.capturing.dynamo.startup import lean_dynamo, prepare_distributions
from hostjit.capturing.dynamo.stores import Changes, recording_changes
from hostjit.capturing.dynamo.tensor_methods import checked_tensor_methods
from hostjit.capturing.dynamo.tensor_places import following_places
from hostjit.capturing.dynamo.unknown_items import items_unknown
from hostjit.capturing.dynamo.whole_operators import whole_operators
from hostjit.capturing.errors import CaptureError
from hostjit.capturing.failures import translate_failure
from hostjit.capturing.functional.open_composites import composites_of_open_sizes
from hostjit.capturing.functional.open_powers import powers_of_open_numbers
from hostjit.capturing.numbers.item_reads import ItemReads
from hostjit.capturing.numbers.open_numbers import left_open
from hostjit.capturing.numbers.python_functions import MadeOf, made_in, without_guards_on
from hostjit.capturing.numbers.results import NumberResults

__all__ = ["DynamoCapture", "function_modes", "guard_settings", "run_dynamo"]

# A context in which the stack of torch-function modes is empty: Dynamo traces the modes itself.
function_modes: Any = torch_function_mode_stack_state_mgr

# Nothing may be assumed: every read of Python state must leave a guard.
_GUARDS: dict[str, Any] = {
    "guard_nn_modules": True,
    "skip_nnmodule_hook_guards": False,
    "assume_dunder_attributes_remain_unchanged": False,
    "skip_guards_on_constant_func_defaults": False,
    "use_recursive_dict_tags_for_guards": False,
    "skip_tensor_guards_with_matching_dict_tags": False,
    # The other kind has a state.
    "use_lamba_guard_for_object_aliasing": True,
}
# As this torch has them.
guard_settings = {k: v for k, v in _GUARDS.items() if hasattr(torch._dynamo.config, k)}

_SETTINGS: dict[str, Any] = {
    "assume_static_by_default": True,
    "automatic_dynamic_shapes": False,
    "force_parameter_static_shapes": False,
    "specialize_int": True,
    "specialize_float": True,
    # Else bytecode computes such numbers anew at each call, and nothing guards what of.
    "computed_lazy_constant_max_nodes": 0,
    "use_graph_deduplication": False,
    "track_nodes_for_deduplication": False,
    "capture_scalar_outputs": False,
    "capture_dynamic_output_shape_ops": False,
    # Read when bytecode is generated: two context managers less in every call.
    "record_runtime_overhead": False,
    "install_free_tensors": False,
    "prepare_freezing": False,
    "allow_rnn": True,
    # Numbers of NumPy's generators are NumPy's own: such calls are not followed.
    "use_numpy_random_stream": True,
    "replay_side_effects": True,
    "side_effect_replay_policy": "silent",
    "suppress_errors": False,
    "error_on_recompile": False,
}


@dataclasses.dataclass
class DynamoCapture:
    """What Dynamo made of one call.

    Attributes:
        entry: the traced function, `entry(*args, **kwargs)`.
        target: the user's callable, which `entry` calls.
        graph_module: the torch-level graph; None when the call does no tensor work.
        inputs: the live tensors that were its inputs, in placeholder order; None for those that
            `forget_arguments` was told of.
        positions: where they stand among all inputs; the others are sizes of theirs.
        input_count: the number of all inputs.
        fake_mode: the mode to trace the graph in further; None without a graph.
        bytecode: the rebuilt code of `entry`: unpacks, calls the graph, replays side effects.
        backend_name: the global name under which the bytecode finds the compiled graph.
        changes: of existing Python objects, and who makes them.
        number_inputs: for each open number that the program takes where it stands among all
            inputs, and what it is now; None for one that Dynamo's graph does not take.
        made_symbols: of numbers that Python makes of open ones, and how it does.
        numbers: the results of the graph that are numbers, once they are taken out of it.
        output: Dynamo's own record (guards, sources, scopes).
        guard_manager: Dynamo's compiled guards, over {"args", "kwargs", TARGET_NAME}.
        traced_code: the code objects that were inlined.
        members: of enumerations, which were met.
        identities: of values outside of the arguments, which `is` compared.
        field_reads: of users' objects.
        installed_globals: names that Dynamo itself put among the user's globals.
        broke: why the trace stopped before the end, if it did.
        rest_is_left: what follows the break cannot be resumed by a function of its own.
    """

    entry: types.FunctionType
    target: Any
    graph_module: torch.fx.GraphModule | None
    inputs: list[Any]
    positions: list[int]
    input_count: int
    fake_mode: Any
    bytecode: types.CodeType
    backend_name: str | None
    changes: Changes
    output: Any
    guard_manager: Any
    traced_code: list[types.CodeType]
    members: list[enum.Enum]
    identities: list[Identity]
    field_reads: FieldReads
    installed_globals: frozenset[str]
    broke: CaptureError | None
    rest_is_left: bool = False
    number_inputs: Sequence[tuple[int | None, Any]] = ()
    made_symbols: Mapping[Any, MadeOf] = dataclasses.field(default_factory=dict)
    numbers: NumberResults = dataclasses.field(default_factory=NumberResults)

    def scope(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the locals of `entry` for a call: what Dynamo's guards are evaluated over."""
        return {"args": tuple(args), "kwargs": dict(kwargs), TARGET_NAME: self.target}

    def forget_arguments(self, leaves: Sequence[torch.Tensor]) -> None:
        """Let go of the tensors that the call was given: each call brings its own."""
        given = set(map(id, leaves))
        self.inputs = [
            None if id(tensor) in given and self.input_source(position) is not None else tensor
            for position, tensor in enumerate(self.inputs)
        ]
        if hasattr(self.output, "local_scope"):
            self.output.local_scope = {}

    def computes(self) -> bool:
        """Tell whether the graph has operators of tensors, or what changes a mode of PyTorch's."""
        nodes = () if self.graph_module is None else self.graph_module.graph.nodes
        calls = [node for node in nodes if node.op not in ("placeholder", "output")]
        return not all(is_number(node.meta.get("example_value")) for node in calls)

    def tensor_nodes(self) -> list[torch.fx.Node]:
        """Return the placeholders of the graph that are tensors, in the order of `inputs`."""
        assert self.graph_module is not None
        nodes = self.graph_module.graph.find_nodes(op="placeholder")
        return [nodes[position] for position in self.positions]

    def input_path(self, position: int) -> str:
        """Return where Dynamo found an input, in its notation, or "" when it did not say."""
        source = self.input_source(position)
        return "" if source is None else str(source.name)

    def input_source(self, position: int) -> Any:
        """Return Dynamo's source of an input, or None."""
        metadata = getattr(self.output, "export_metadata", None)
        sources = getattr(metadata, "graph_input_idx_to_local_source", {})
        return sources.get(self.positions[position])

    def bind(
        self, compiled: Callable[..., Sequence[torch.Tensor]], *, live_globals: bool
    ) -> Callable[..., Any]:
        """Return a function with the signature of the target that runs the bytecode.

        Args:
            compiled: called with the graph's tensor inputs and then its open numbers,
                positionally; returns its outputs, numbers among them.
            live_globals: run over the user's module globals (needed where the bytecode writes
                them), not over a copy.
        """
        if len(self.positions) < self.input_count or self.number_inputs:
            tensors = [(position, None) for position in self.positions]
            compiled = _C.Selection(compiled, [*tensors, *self.number_inputs])
        namespace = self.entry.__globals__
        if not live_globals:
            namespace = dict(namespace)
        name = self.backend_name
        if name is not None:
            namespace[name] = compiled
        closure = self.entry.__closure__
        function = types.FunctionType(self.bytecode, namespace, "hostjit_entry", None, closure)
        function.__dict__["hostjit_capture"] = self
        if live_globals and name is not None:
            weakref.finalize(self, _remove_names, namespace, [name]).atexit = False
        return function


def run_dynamo(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    then: Continuation | None = None,
    numbers: Collection[str] = (),
    leaves: Sequence[torch.Tensor] = (),
    reads: ItemReads | None = None,
    classes: ByFields = NONE_BY_FIELDS,
) -> DynamoCapture:
    """Trace one call of `target`; raises CaptureError when Dynamo cannot.

    The caller holds `compile_lock`.

    Args:
        target: the user's callable.
        args: the positional arguments of the call.
        kwargs: its keyword arguments.
        then: trace as far as Dynamo can follow, and have the bytecode go on with what this
            provides. Without it the call is traced whole.
        numbers: sources of numbers to trace as symbols where that can be.
        leaves: the tensor leaves of the arguments.
        reads: has numbers that code reads from tensors traced as symbols, too.
        classes: of which each call may bring other objects.
    """
    if not hasattr(convert_frame, "fullgraph_capture"):
        raise ImportError("this torch has no torch._dynamo.convert_frame.fullgraph_capture")
    prepare_distributions()
    of_numpy = NumbersOfNumpy(kept_out=False)
    follows_places = True
    while True:
        opened = functools.partial(
            left_open,
            numbers,
            leaves,
            reads,
            of_places=not follows_places,
            breaks_at_texts=then is not None and then.in_use,
        )
        recording = functools.partial(recording_changes, numbers, classes)
        traced = _run_dynamo(
            target, args, kwargs, then, opened, recording, of_numpy, follows_places
        )
        module = traced.graph_module
        if module is None:
            return traced
        if not of_numpy.kept_out and not of_numpy.put_into(module.graph):
            of_numpy.kept_out = True
        elif follows_places and not with_places_as_data(module):
            follows_places = False
        else:
            return traced


def _run_dynamo(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    then: Continuation | None,
    opened: Callable[[], contextlib.AbstractContextManager[dict[Any, MadeOf]]],
    recording: Callable[[Callable[[], bool]], contextlib.AbstractContextManager[Changes]],
    of_numpy: NumbersOfNumpy,
    follows_places: bool,
) -> DynamoCapture:
    entry = make_entry(target)
    namespace = entry.__globals__
    settings = {k: v for k, v in _SETTINGS.items() if hasattr(torch._dynamo.config, k)}
    modes_in_place: Any = contextlib.nullcontext()
    varies = None if then is None or then.follows_lists else then.varies_in_length
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch._dynamo.config.patch(settings | guard_settings))
        stack.enter_context(lean_dynamo())
        stack.enter_context(strides_known())
        stack.enter_context(eager_attention_path())
        stack.enter_context(composites_of_open_sizes())
        stack.enter_context(skipping_steps())
        stack.enter_context(powers_of_open_numbers())
        stack.enter_context(regions_take_floats())
        stack.enter_context(logging_numbers())
        made = stack.enter_context(opened())
        stack.enter_context(checked_tensor_methods())
        members = stack.enter_context(noting_members())
        identities = stack.enter_context(noting_identities())
        field_reads = stack.enter_context(noting_field_reads())
        stack.enter_context(whole_operators())
        stack.enter_context(guarding_results())
        stack.enter_context(stopping_at_numpy(of_numpy))
        stack.enter_context(items_unknown())
        if follows_places:
            stack.enter_context(following_places())
        stack.enter_context(corrected())
        stack.enter_context(following_growth(varies))
        stack.enter_context(guards_are_free())
        stack.enter_context(stopping_at_backward_hooks())
        stack.enter_context(get_metrics_context())
        stack.enter_context(dynamo_timed("hostjit_capture"))
        if not _tracing_sets_modes_aside():
            stack.enter_context(function_modes)
            modes_in_place = function_modes.temp_restore_stack()
        if then is not None:
            if not then.unrolls_loops:
                stack.enter_context(stopping_at_long_loops())
            stack.enter_context(stopping_at_many_numbers())
            stack.enter_context(stopping_at_python_methods())
            if varies is not None:
                stack.enter_context(stopping_at_lengths(varies))
        stack.enter_context(stopping_at_steps(then.step_of if then else None))
        breaks = stack.enter_context(stopping_at_breaks()) if resumable() else Breaks()
        changes = stack.enter_context(recording(lambda: breaks.error is not None))
        before = set(namespace)
        try:
            captured = convert_frame.fullgraph_capture(entry, tuple(args), dict(kwargs))
            if breaks.error is not None and then is None:
                raise breaks.error
            output = captured.graph_capture_output
            # Guards on torch-function modes are made, and checked, with the modes in place.
            with modes_in_place, without_guards_on(set(made), output.output_graph.shape_env):
                guards = output.build_guards(entry.__code__).guard_manager
        except Exception as error:
            _remove_names(namespace, _own_names(set(namespace) - before))
            raise translate_failure(error) from error
        installed = set(namespace) - before
        backend = captured.backend_input
        # A graph that computes nothing is called too from torch 2.15 on, by a function of Dynamo's.
        if backend is not None:
            _remove_names(namespace, [name for name in installed if name.startswith(GRAPH)])
    inputs = [] if backend is None else list(backend.example_inputs)
    found = [(n, value) for n, value in enumerate(inputs) if not is_number(value)]
    capture = DynamoCapture(
        entry=entry,
        target=target,
        graph_module=None if backend is None else backend.graph_module,
        inputs=[value for _, value in found],
        positions=[position for position, _ in found],
        input_count=len(inputs),
        fake_mode=None if backend is None else backend.fake_mode,
        bytecode=breaks.placed(output.bytecode),
        backend_name=None if backend is None else backend.backend_id,
        changes=changes,
        made_symbols=made_in(output.output_graph.shape_env, made),
        output=output.output_graph,
        guard_manager=guards,
        traced_code=list(getattr(output, "traced_code", [])),
        members=list(members.values()),
        identities=identities,
        field_reads=field_reads,
        installed_globals=frozenset(installed) | frozenset(output.import_sources),
        # Not the error itself: its traceback would keep the frames of this call alive.
        broke=None if breaks.error is None else translate_failure(breaks.error),
        rest_is_left=bool(breaks.left_alone),
    )
    own = _own_names(installed)
    if breaks.error is not None:
        assert then is not None
        namespace.update(with_resumed(namespace, installed, breaks, then))
        # Frame evaluation passes it over, but looks at what it calls.
        skip_code(capture.bytecode)
    weakref.finalize(capture, _remove_names, namespace, own).atexit = False
    weakref.finalize(capture, let_go, output.output_graph.shape_env).atexit = False
    return capture


@functools.cache
def _tracing_sets_modes_aside() -> bool:
    """Tell whether Dynamo's tracing itself enters `function_modes`, as that of torch 2.11 does.

    The context remembers one stack: entered twice it would forget the modes, inside and after.
    """

    @convert_frame.preserve_global_state
    def stack_is_empty() -> bool:
        return torch._C._len_torch_function_stack() == 0

    with torch.overrides.BaseTorchFunctionMode():
        return stack_is_empty()


def _own_names(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(OF_ONE_CAPTURE)]


def _remove_names(namespace: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        namespace.pop(name, None)
