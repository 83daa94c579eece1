# SPDX-License-Identifier: Apache-2.0
"""Calls that need Dynamo's bytecode: they change Python objects, or return what it alone makes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.program import CapturedProgram
from hostjit.capturing.results.outputs import GraphOutput
from hostjit.compiling.number_values import FlatNumbers
from hostjit.compiling.output_descriptions import describe_output

__all__ = ["CheckedCall", "compiled_graph"]


def compiled_graph(
    captured: CapturedProgram,
    program: _C.CompiledProgram,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    runtime: str | None,
    reuse_outputs: bool = False,
) -> _C.CompiledFunction:
    """Return what the bytecode calls: from the graph's inputs to its outputs, in C.

    Args:
        captured: whose bytecode it is; not kept.
        program: compiled from its graph.
        args: of the call that was captured.
        kwargs: of the same.
        runtime: as of `hostjit.compile`.
        reuse_outputs: as of `hostjit.compile`; not where objects keep what the graph computed.
    """
    count = captured.dynamo_input_count
    inputs = captured.input_values(args, kwargs)
    constants = inputs[count:]
    flat = FlatNumbers(captured)
    tensors = captured.tensors or [*map(GraphOutput, range(len(program.program.outputs)))]
    specialization = _C.Specialization(
        args=flat.given(inputs),
        kwargs={},
        program=program,
        bindings=[*flat.bindings, *constants],
        output=flat.output([describe_output(tensor, flat.values) for tensor in tensors]),
        mutated=list(captured.mutated_inputs),
        runtime=runtime,
        reuse_outputs=reuse_outputs and not captured.keeps_results,
        in_inference_mode=captured.in_inference_mode,
        **flat.described,
    )

    eager, in_inference_mode = captured.tensor_callable(), captured.in_inference_mode

    def run(*given: Any) -> Sequence[Any]:
        arguments = [*given, *constants]
        try:
            program.check(arguments)
        except _C.Error:
            return eager(*given)  # Dynamo's code makes of its inputs what no guard tells
        with torch._C._InferenceMode(True) if in_inference_mode else contextlib.nullcontext():
            return program.run(arguments, runtime)

    # What raises before it has written anything is run again as it is, and leaves what it writes.
    is_same = not (captured.tensors or captured.in_inference_mode)
    original = captured.bytecode.eager() if is_same else None
    owner = _OneSpecialization(specialization, has_original=original is not None)
    return _C.CompiledFunction(original or captured.with_numbers(run), owner)


class _OneSpecialization:
    """Owner of a function whose calls were all checked before: by the watches or by Dynamo."""

    def __init__(self, specialization: _C.Specialization, *, has_original: bool) -> None:
        self.has_original = has_original
        self._specialization: _C.Specialization | None = specialization

    def specialize(self, *_: Any) -> _C.Specialization | None:
        """Return it the first time; whatever else comes runs as given, fully checked."""
        made, self._specialization = self._specialization, None
        return made


class CheckedCall:
    """Runs bytecode whose assumptions can't all be watched: the others are checked at every call.

    When they fail, the target runs eagerly, and `state` changes: watched, it makes the next call
    look for another specialization.
    """

    def __init__(
        self, captured: CapturedProgram, run: Callable[..., Any], target: Callable[..., Any]
    ) -> None:
        self._holds = captured.guard_check.holds_now
        self._run = run
        self._target = target
        self.state = [True]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._holds(args, kwargs):
            return self._run(*args, **kwargs)
        self.state[0] = False
        return self._target(*args, **kwargs)

    def watch(self) -> tuple[Any, ...]:
        """Return the watch of `state`, as `_C.Specialization` takes it; it holds from now on."""
        self.state[0] = True
        return ("list", self.state, (True,))
