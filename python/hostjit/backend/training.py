# SPDX-License-Identifier: Apache-2.0
"""Compiles a graph that needs gradients: AOTAutograd splits it, both halves are compiled."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._functorch._aot_autograd import runtime_wrappers

from hostjit import _C
from hostjit.backend.eager_gradients import EagerGradients
from hostjit.backend.float_operands import floats_as_tensors
from hostjit.backend.graph_compilation import compile_graph
from hostjit.backend.open_graph import compile_open_graph
from hostjit.capturing.contexts import eager_graph
from hostjit.capturing.errors import CaptureError
from hostjit.capturing.functional.graph_writes import (
    refuse_overlapping_writes,
    refuse_views_at_any_size,
    refuse_writes_through_unfold,
    written_inputs,
)
from hostjit.capturing.functional.hidden_writes import (
    batch_norms_hide_writes,
    hide_writes,
    mark_hidden,
)
from hostjit.capturing.gradients.gradient_composites import composites_with_gradients
from hostjit.capturing.gradients.joint import partition
from hostjit.capturing.inference_mode import find_modes
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.capturing.thread_state import thread_state_kept
from hostjit.compiling.options import Options
from hostjit.replacements import replaced_attribute

__all__ = ["compile_with_backward"]

# An attribute of errors that a program raised before anything was written.
_RAISED_EARLY = "hostjit_raised_early"
_SHARED = "two inputs share memory that the call changes; clone one of them"


def compile_with_backward(
    module: torch.fx.GraphModule, inputs: Sequence[Any], name: str, options: Options
) -> Callable[..., Any]:
    """Return a callable that answers as `module` does, and whose results have their gradients.

    Results are new tensors at every call, whatever the options say: a backward pass reads what the
    forward pass returned, and there may be other calls in between.
    """
    options = dataclasses.replace(options, reuse_outputs=False)
    positions = written_inputs(module)
    written = _C.MutatedInputs(positions, len(inputs))
    if written.are_reached_twice(tuple(inputs)):
        warnings.warn(f"hostjit: '{name}' runs eagerly: {_SHARED}", stacklevel=2)
        return eager_graph(module)
    eager_gradients = EagerGradients(module, name)

    def split_joint(
        joint: torch.fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **arguments: Any
    ) -> Any:
        eager_gradients.note_joint(joint.graph, num_fwd_outputs)
        return partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **arguments)

    split = aot_autograd(
        fw_compiler=functools.partial(_compile_boxed, f"{name}_forward", options),
        bw_compiler=functools.partial(_compile_boxed, f"{name}_backward", options),
        inference_compiler=functools.partial(_compile_boxed, name, options),
        partition_fn=split_joint,
        keep_inference_input_mutations=True,
    )
    try:
        refuse_writes_through_unfold(module.graph)
        refuse_overlapping_writes(module.graph)
        refuse_views_at_any_size(module, positions)
        hide_writes(module, with_gradients=True)
        with (
            thread_state_kept(),
            composites_with_gradients(),
            batch_norms_hide_writes(),
            floats_as_tensors(),
            _first_call_as_others(module),
            eager_gradients.of_what_is_compiled(),
        ):
            compiled: Callable[..., Any] = split(module, inputs)
    except TorchDynamoException:
        raise  # Dynamo is to look at the function again
    except Exception as error:
        raise_of_handler(error)
        if not options.fallback:
            raise
        warnings.warn(f"hostjit: '{name}' runs eagerly: {error!r}", stacklevel=2)
        return eager_graph(module)
    if find_modes(module).changes_grad_mode:
        compiled = _leaving_grad_mode(compiled, not torch.is_grad_enabled())
    if written.empty():
        return compiled
    return _of_what_is_written(compiled, written, module, name)


def _of_what_is_written(
    compiled: Callable[..., Any], written: _C.MutatedInputs, module: torch.fx.GraphModule, name: str
) -> Callable[..., Any]:
    """Return what runs a graph eagerly where what it writes would be otherwise than in eager mode.

    That is where another input has elements of one that is written: AOTAutograd compiles for the
    memory of the first call, and Dynamo guards nothing of it. And where an operator raises: what
    comes before is written at the end, so that eager mode can still write it, and raise.
    """
    eager = eager_graph(module)
    said = False

    def call(*inputs: Any) -> Any:
        nonlocal said
        if not written.are_reached_twice(inputs):
            try:
                return compiled(*inputs)
            except Exception as error:
                raise_of_handler(error)
                if not getattr(error, _RAISED_EARLY, False):
                    raise
            return eager(*inputs)
        if not said:
            said = True
            warnings.warn(f"hostjit: '{name}' runs eagerly: {_SHARED}", stacklevel=2)
        return eager(*inputs)

    return call


def _all_write_last(compiled: Any) -> bool:
    """Tell whether nothing has happened yet where any of its programs raises."""
    programs = [specialization.program for specialization in compiled.specializations]
    return bool(programs) and all(each and each.writes_inputs_last for each in programs)


def _leaving_grad_mode(run: Callable[..., Any], enabled: bool) -> Callable[..., Any]:
    """Return what leaves recording of gradients as the graph does, switched on or off.

    AOTAutograd of torch 2.11 forgets to where no result needs a gradient.
    """

    def call(*inputs: Any) -> Any:
        results = run(*inputs)
        torch._C._set_grad_enabled(enabled)
        return results

    return call


@contextlib.contextmanager
def _first_call_as_others(module: torch.fx.GraphModule) -> Iterator[None]:
    """Compile a graph that AOTAutograd does not call in a dispatch mode, which it does once.

    It looks for operators of users that return what they take. In a mode compiled functions run
    eagerly, and PyTorch's kernels take tensors that are conjugated lazily for others.
    """
    if any(_is_of_users(node.target) for node in module.graph.nodes):
        yield
        return

    def init(self: Any) -> None:
        self._is_first = False

    with replaced_attribute(runtime_wrappers._FirstInvocationContext, "__init__", init):
        yield


def _is_of_users(target: Any) -> bool:
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target).partition(".")[0] not in ("aten", "prim", "prims")
    return isinstance(target, torch._ops.HigherOrderOperator)


def _compile_boxed(
    name: str, options: Options, module: torch.fx.GraphModule, inputs: Sequence[Any]
) -> Callable[[list[Any]], Sequence[Any]]:
    """AOTAutograd calls with one list, which it gives up.

    A backward pass is the last to hold what was saved for it: memory that it has used is free for
    what it still makes.
    """
    mark_hidden(module.graph)  # AOTAutograd itself tells autograd of them
    compiled = compile_open_graph(module, name, options, donates=True) or compile_graph(
        module, name, options, donates=True
    )

    def call(inputs: list[Any]) -> Sequence[Any]:
        try:
            results: Sequence[Any] = compiled.call_boxed(inputs)
        except Exception as error:
            # Not what hostjit itself has to say.
            if not isinstance(error, (CaptureError, _C.Error)) and _all_write_last(compiled):
                setattr(error, _RAISED_EARLY, True)
            raise
        return results

    call._boxed_call = True  # type: ignore[attr-defined]
    return call
