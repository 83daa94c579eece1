# SPDX-License-Identifier: Apache-2.0
"""From a captured program and its compiled code to what the call path checks and runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.bytecode_call import CheckedCall, compiled_graph
from hostjit.capture import outputs as capture_outputs
from hostjit.capture import watches
from hostjit.capture.program import ArgumentLeaf, CapturedProgram, InputBinding
from hostjit.capture.size_guard import size_guard

__all__ = ["describe_inputs", "describe_output", "make_specialization"]


def make_specialization(
    captured: CapturedProgram,
    program: _C.CompiledProgram,
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    runtime: str | None,
    reuse_outputs: bool = False,
) -> _C.Specialization:
    """Return the specialization that answers calls like (args, kwargs) of `target` with `program`.

    Raises hostjit.Error when the captured description does not fit the program.
    """
    route: Callable[..., Any] | None = None
    checked: CheckedCall | None = None
    output: tuple[Any, ...] = ("object", None)
    if captured.needs_bytecode:
        graph = compiled_graph(captured, program, args, kwargs, runtime)
        route = captured.bytecode.bind(graph)
        # Written inputs have to be known before the call: see `mutated`.
        if captured.guards.check_every_call and not captured.mutated_inputs:
            route = checked = CheckedCall(captured, route, target)
    else:
        assert captured.output_spec is not None
        output = describe_output(captured.output_spec)
    symbolic: dict[str, Any] = {}
    if captured.environment is not None:
        symbolic["row_guard"] = size_guard(captured.environment, program.symbols)

    def watch() -> list[tuple[Any, ...]]:
        watched = [_watch(entry) for entry in captured.guards.watches]
        return watched if checked is None else [*watched, checked.watch()]

    def revalidate(*call: Any) -> tuple[list[tuple[Any, ...]], list[int | torch.Tensor]] | None:
        valid = captured.revalidate(*call)
        return (watch(), describe_inputs(captured.inputs)) if valid else None

    return _C.Specialization(
        args=args,
        kwargs=kwargs,
        program=program,
        bindings=describe_inputs(captured.inputs),
        output=output,
        watches=watch(),
        revalidate=revalidate,
        always_revalidate=captured.guards.check_every_call and checked is None,
        mutated=list(captured.mutated_inputs),
        route=route,
        runtime=runtime,
        reuse_outputs=reuse_outputs,
        **symbolic,
    )


def describe_inputs(inputs: Sequence[InputBinding]) -> list[int | torch.Tensor]:
    """Return the list that `_C.Specialization` takes."""
    return [
        binding.index if isinstance(binding, ArgumentLeaf) else binding.tensor for binding in inputs
    ]


def _watch(entry: watches.Watch) -> tuple[Any, ...]:
    """The tuple that `_C.Specialization` takes."""
    match entry:
        case watches.DictVersion():
            return ("dict", entry.mapping, entry.owner)
        case watches.DictItems():
            missing = watches.MISSING
            return ("dict_items", entry.mapping, entry.owner, entry.keys, entry.expected, missing)
        case watches.CellContents():
            contents = () if entry.expected is watches.MISSING else (entry.expected,)
            return ("cell", entry.cell, contents)
        case watches.ListItems():
            return ("list", entry.list, entry.items)
        case watches.SetItems():
            return ("set", entry.set, entry.items)
        case watches.TypeVersion():
            return ("type", entry.type)
        case watches.ObjectType():
            return ("object_type", entry.object, entry.type)
        case watches.FunctionState():
            return ("function", entry.function, entry.code, entry.defaults, entry.kwdefaults)
        case watches.TensorState():
            return ("tensor", entry.tensor)


def _new_namedtuple(kind: type, items: tuple[Any, ...]) -> Any:
    return tuple.__new__(kind, items)


def describe_output(output: capture_outputs.Output) -> tuple[Any, ...]:
    """Return the nested tuples that `_C.Specialization` takes."""
    match output:
        case capture_outputs.GraphOutput(index):
            return ("output", index)
        case capture_outputs.ArgumentOutput(leaf):
            return ("argument", leaf)
        case capture_outputs.BoundOutput():
            return ("object", output.tensor)
        case capture_outputs.ConstantOutput():
            return ("object", output.value)
        case capture_outputs.TupleOutput(items):
            return ("tuple", [describe_output(item) for item in items])
        case capture_outputs.ListOutput(items):
            return ("list", [describe_output(item) for item in items])
        case capture_outputs.DictOutput(kind, keys, items):
            description = ("dict", keys, [describe_output(item) for item in items])
            return description if kind is dict else ("call", kind, [description])
        case capture_outputs.NamedTupleOutput(kind, items, struct_sequence):
            children = [("tuple", [describe_output(item) for item in items])]
            if struct_sequence:
                return ("call", kind, children)
            return ("call", lambda values: _new_namedtuple(kind, values), children)
        case capture_outputs.ObjectOutput(kind, names, items):

            def make(*values: Any) -> Any:
                instance: Any = object.__new__(kind)
                instance.__dict__.update(zip(names, values, strict=True))
                return instance

            return ("call", make, [describe_output(item) for item in items])
    raise AssertionError(f"unknown output {output!r}")
