# SPDX-License-Identifier: Apache-2.0
"""What Inductor makes of a graph: its schedule of kernels, recorded instead of printed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._higher_order_ops.utils import HigherOrderOperator
from torch._inductor import config, ir
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.compile_fx import record_original_output_strides, view_to_reshape
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.post_grad import post_grad_passes
from torch._inductor.graph import GraphLowering
from torch._inductor.lowering import fallback_handler
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.fx.traceback import preserve_node_meta, set_current_meta

from hostjit.capturing.dynamic_dims import guards_again

__all__ = ["Schedule", "UnsupportedLineError", "schedule"]

# What users may have set otherwise for torch.compile. A schedule has eager's random numbers; which
# buffers share memory, and what is checked about inputs, is decided elsewhere; kernels are
# Inductor's own or eager's operators.
_CONFIG = {
    "fallback_random": True,
    "allow_buffer_reuse": False,
    "memory_planning": False,
    "graph_partition": False,
    "reorder_for_locality": False,  # torch 2.11 moves draws, too
    "cpp_wrapper": False,
    "fx_wrapper": False,
    "freezing": False,
    "size_asserts": False,
    "alignment_asserts": False,
    "nan_asserts": False,
    "inplace_padding": False,
    "max_autotune": False,
    "max_autotune_gemm": False,
    "generate_intermediate_hooks": False,
    "profile_bandwidth": False,
    "cpp.enable_kernel_profile": False,
}


class UnsupportedLineError(Exception):
    """A line of Inductor's schedule, or an operator, that has no form in Host IR."""


@dataclass(frozen=True)
class Schedule:
    """The recorded lines of a graph, in order.

    Attributes:
        lines: Inductor's objects, and comments as plain text.
        graph: what holds the buffers, sizes and constants that they name.
        inputs: names of the buffers of the graph's placeholders; None for numbers.
        outputs: IR nodes of the graph's results.
        fake_mode: in which the sizes of the graph have their meaning.
    """

    lines: Sequence[Any]
    graph: GraphLowering
    inputs: Sequence[str | None]
    outputs: Sequence[Any]
    fake_mode: FakeTensorMode

    def size(self, name: str) -> Any:
        """The expression of a size by its name in a kernel's arguments."""
        sizes = self.graph.sizevars
        symbols = (*sizes.inv_precomputed_replacements, *sizes.shape_env.var_to_range)
        known = {str(symbol): symbol for symbol in symbols}
        try:
            return sympy.sympify(name, locals=known)
        except (sympy.SympifyError, SyntaxError) as error:
            raise UnsupportedLineError(f"a kernel takes {name}, which is no size") from error


class _Recorder(PythonWrapperCodegen):
    """Keeps the lines of a schedule, which others print as Python or C++."""

    def _generate(self, is_inference: bool) -> tuple[None, None]:
        self.run_wrapper_ir_passes(is_inference)
        return None, None

    def codegen_inputs(self) -> None:
        """Read no sizes off inputs: that is done by whoever reads the lines."""

    def register_alignment_check_inputs(self) -> None:
        """Copy no inputs for the sake of their alignment."""

    def codegen_deferred_alignment_copies(self, input_names: Any, stream: int = 0) -> None:
        """Copy no inputs for the sake of their alignment."""


class _Lowering(GraphLowering):
    _last_random: str | None = None

    def init_wrapper_code(self, *args: Any, **kwargs: Any) -> None:
        super().init_wrapper_code(*args, **kwargs)
        self.wrapper_code = _Recorder()  # type: ignore[no-untyped-call]

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not _is_random(target):
            return super().call_function(target, args, kwargs)
        known = len(self.operations)
        result = fallback_handler(target, add_to_fallback_set=False)(*args, **kwargs)
        # Each draws what the one before has left: the scheduler must not exchange them.
        for operation in self.operations[known:]:
            if isinstance(operation, ir.FallbackKernel):
                if self._last_random is not None:
                    dependencies = self.additional_buffer_deps[operation.get_operation_name()]
                    dependencies.add(self._last_random)
                self._last_random = operation.get_name()
        return result


def schedule(graph: Graph, results: Sequence[Node]) -> Schedule:
    """Return Inductor's schedule of what leads to `results` and of writes of inputs.

    Args:
        graph: a functional ATen graph; its nodes have fake tensors as `meta["val"]`.
        results: the nodes whose tensors are wanted, laid out as theirs.

    Raises UnsupportedLineError for control flow, and whatever Inductor raises.
    """
    values = [node.meta["val"] for node in graph.find_nodes(op="placeholder")]
    tensors = [node.meta.get("val") for node in graph.nodes]
    mode = next(value.fake_mode for value in tensors if isinstance(value, FakeTensor))
    with config.patch(_known(_CONFIG)), _inductor_state(mode):
        module = _decomposed(graph, results, values, mode)
        lowering = _Lowering(
            module, example_inputs=values, shape_env=mode.shape_env, is_inference=True
        )
        lowering.freeze_runtime_asserts()
        with V.set_graph_handler(lowering), V.set_extern_kernel_nodes([]):
            lowering.run(*values)
            lowering.codegen()
    names = [
        node.target if isinstance(value, torch.Tensor) else None
        for node, value in zip(module.graph.find_nodes(op="placeholder"), values, strict=True)
    ]
    return Schedule(lowering.wrapper_code.lines, lowering, names, lowering.graph_outputs, mode)


@contextlib.contextmanager
def _inductor_state(mode: FakeTensorMode) -> Iterator[None]:
    with (
        DebugContext(),
        V.set_fake_mode(mode),
        guards_again(mode.shape_env),
        torch.no_grad(),
    ):
        yield


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that this release of PyTorch has."""
    known = config.get_config_copy()
    return {name: value for name, value in options.items() if name in known}


def _runner(graph: Graph, results: Sequence[Node]) -> Callable[..., tuple[Any, ...]]:
    """What runs a graph, whose arguments may be symbolic numbers, for some of its values."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        values = dict(zip(graph.find_nodes(op="placeholder"), inputs, strict=True))
        for node in graph.nodes:
            if node.op != "call_function":
                continue
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            with set_current_meta(node):
                values[node] = node.target(*args, **kwargs)
        return tuple(values[result] for result in results)

    return run


def _is_random(operator: Any) -> bool:
    """Whether an operator draws numbers: eager's are wanted, so it stays what it is."""
    return torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())


def _decomposed(
    graph: Graph, results: Sequence[Node], values: Sequence[Any], mode: FakeTensorMode
) -> GraphModule:
    """The graph in the operators that Inductor lowers."""
    for node in graph.nodes:
        if isinstance(node.target, HigherOrderOperator):
            raise UnsupportedLineError(f"it has control flow, {node.target}")
    table = {
        operator: rule
        for operator, rule in select_decomp_table().items()
        if not _is_random(operator)
    }
    with mode, enable_python_dispatcher(), preserve_node_meta():
        module = make_fx(_runner(graph, results), decomposition_table=table)(*values)
    assert isinstance(module, GraphModule)
    output = module.graph.output_node()
    output.meta["user_visible_output_idxs"] = list(range(len(results)))
    view_to_reshape(module)
    record_original_output_strides(module)
    post_grad_passes(module, is_inference=True)
    return module
