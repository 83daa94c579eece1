# SPDX-License-Identifier: Apache-2.0
"""Has Dynamo stop where it cannot go on, with code that goes on from there.

That code runs the graph of what came before, executes the instruction that Dynamo could not follow,
and calls a function that Dynamo wrote for the rest of the call: one that resumes in the middle of
the user's. Where the instruction stands in an inlined function, there is one for each frame above
it, and the outermost is handed the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
import torch._dynamo
from torch._dynamo import convert_frame
from torch._dynamo.exc import Unsupported, unimplemented
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.symbolic_convert import (
    InstructionTranslatorBase,
    break_graph_if_unsupported,
)
from torch._dynamo.variables.lazy import LazyConstantVariable
from torch._dynamo.variables.tensor import TensorVariable

from hostjit.capturing.dynamo.instruction_handlers import Handler, replaced_handlers
from hostjit.capturing.dynamo.many_numbers import is_brought
from hostjit.capturing.dynamo.older_resumption import can_make_resumed, making_resumed
from hostjit.capturing.errors import name_before_breaks
from hostjit.replacements import replaced_attribute

__all__ = ["Breaks", "Continuation", "resumable", "stopping_at_breaks", "with_resumed"]

_RESUMED = "__resume_at"
_OPERATORS = ("BINARY_OP", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "BUILD_STRING")
_SETTINGS = {
    "nested_graph_breaks": True,
    # Without, what does no tensor work would be refused.
    "allow_empty_graphs": True,
}


class Continuation(Protocol):
    """Provides what the rest of a call runs.

    Attributes:
        in_use: calls run in parts, this one or that of which it is a part.
        unrolls_loops: loops are unrolled, however long.
        follows_lists: nothing is stopped at because a list differs by call.
    """

    in_use: bool
    unrolls_loops: bool
    follows_lists: bool

    def resume(self, function: types.FunctionType) -> Callable[..., Any]:
        """Return what to call instead of a function that goes on behind a break."""

    def step_of(self, optimizer: torch.optim.Optimizer) -> Callable[..., Any] | None:
        """Return what to call instead of `optimizer.step`, None for the same."""

    def varies_in_length(self, translator: Any, name: str, length: int) -> bool:
        """Tell whether a container from outside of the call had another length before."""


@dataclasses.dataclass
class Breaks:
    """Where a trace stopped.

    Attributes:
        error: why it stopped, at an instruction that can be gone on behind; None: it did not.
        left_alone: code that resumes where Dynamo cannot: it is to run as it is.
        place: the code and the line of that instruction.
    """

    error: Exception | None = None
    left_alone: set[types.CodeType] = dataclasses.field(default_factory=set)
    place: tuple[types.CodeType, int] | None = None

    def placed(self, code: types.CodeType) -> types.CodeType:
        """Return code that Dynamo wrote of `entry`, at the place of the instruction that it has.

        That is what the instruction shows: the records of a logger, warnings, tracebacks.
        """
        if self.place is None:
            return code
        of, line = self.place
        now = {number for _, _, number in code.co_lines() if number}
        first = code.co_firstlineno + line - max(now, default=line)
        return code.replace(
            co_filename=of.co_filename,
            co_firstlineno=max(first, 1),
            co_name=name_before_breaks(of.co_name),
            co_qualname=name_before_breaks(of.co_qualname),
        )


def resumable() -> bool:
    """Tell whether this torch resumes in inlined functions, over the globals of each."""
    return (
        can_make_resumed()
        and hasattr(TensorVariable, "_warn_capture_scalar_outputs")
        and all(hasattr(torch._dynamo.config, name) for name in _SETTINGS)
    )


@contextlib.contextmanager
def stopping_at_breaks() -> Iterator[Breaks]:
    """Make `convert_frame.fullgraph_capture` stop at what it cannot trace, in this thread."""
    owner = threading.get_ident()
    breaks = Breaks()
    logged: list[Exception] = []
    compile_frame = convert_frame.compile_frame
    compile_subgraph = OutputGraph.compile_subgraph
    log_graph_break = InstructionTranslatorBase.log_graph_break
    eval_frame = importlib.import_module("torch._dynamo.eval_frame")
    skip_code = eval_frame.skip_code

    def compile_up_to_break(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == owner:
            kwargs["one_graph"] = False
        return compile_frame(*args, **kwargs)

    def stop(self: Any, tx: Any, reason: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == owner and reason.graph_break:
            error = logged[-1] if logged else Unsupported(reason.reason)
            # In `entry` itself nothing of the user's was done before. Dynamo goes on behind an
            # instruction that called code with what that gave, for what the instruction gives.
            if tx.parent is None or _is_within_an_instruction(tx):
                raise error
            breaks.error = error
            breaks.place = tx.f_code, tx.lineno
            _name_iterators_as_code_does(tx)
        return compile_subgraph(self, tx, reason, *args, **kwargs)

    def record(self: Any, *args: Any, **kwargs: Any) -> None:
        if threading.get_ident() == owner:
            logged.append(kwargs["exc"])
        log_graph_break(self, *args, **kwargs)

    def leave_alone(code: types.CodeType) -> None:
        if threading.get_ident() == owner:
            breaks.left_alone.add(code)
        skip_code(code)

    with (
        torch._dynamo.config.patch(_SETTINGS),
        _operators_break(owner),
        making_resumed(),
        replaced_attribute(convert_frame, "compile_frame", compile_up_to_break),
        replaced_attribute(OutputGraph, "compile_subgraph", stop),
        replaced_attribute(InstructionTranslatorBase, "log_graph_break", record),
        replaced_attribute(eval_frame, "skip_code", leave_alone),
        # It says so in the log, once in a process.
        replaced_attribute(
            TensorVariable, "_warn_capture_scalar_outputs", staticmethod(lambda: None)
        ),
    ):
        yield breaks


@contextlib.contextmanager
def _operators_break(owner: int) -> Iterator[None]:
    """Let Dynamo go on behind an operator of Python's that it cannot follow, as behind a call.

    And behind a text that is made of what it cannot follow.
    """
    breaking = break_graph_if_unsupported(push=True, msg_prefix="an operator")

    def made(original: Handler) -> Handler:
        def run(self: Any, instruction: Any) -> None:
            if instruction.opname == "BUILD_STRING":
                _stop_at_given_texts(self.stack[-instruction.arg :])
            original(self, instruction)

        with_break = breaking(run)

        def compute(self: Any, instruction: Any) -> None:
            is_asked = threading.get_ident() == owner
            (with_break if is_asked else original)(self, instruction)

        return compute

    with replaced_handlers(_OPERATORS, made):
        yield


def _stop_at_given_texts(parts: Iterable[Any]) -> None:
    """Stop ahead of a text that is made of one which a break has left, as of `f"{x.item()}"`.

    It would be compared, and be another at each call.
    """
    if any(_is_given_text(part) for part in parts):
        unimplemented(
            gb_type="text of a given one",
            context="",
            explanation="A text is made of one that a call brings.",
            hints=[],
        )


def _is_given_text(part: Any) -> bool:
    if type(part) is not LazyConstantVariable or part.is_realized():
        return False
    return part.peek_type() is str and is_brought(part.source)


def _is_within_an_instruction(translator: Any) -> bool:
    """Whether code runs for an instruction that makes something else of what the code returns.

    That is `x not in values` with the `__contains__` of a class, which need not return a bool, a
    comparison whose result is made a bool, and a loop that ends where `__next__` raises.
    """
    while (translator := translator.parent) is not None:
        now = translator.current_instruction
        makes_bool = sys.version_info >= (3, 13) and now.opname == "COMPARE_OP" and now.arg & 16
        if now.opname in ("CONTAINS_OP", "FOR_ITER") or makes_bool:
            return True
    return False


def _name_iterators_as_code_does(translator: Any) -> None:
    # The first argument of a comprehension is `.0` in its code, and what `inspect` names it here:
    # Dynamo looks for both where it traces, but not where it asks what the rest of a frame needs.
    while translator is not None:
        names = translator.symbolic_locals
        if "implicit0" in names and ".0" in translator.f_code.co_varnames:
            names[".0"] = names.pop("implicit0")
        translator = translator.parent


def with_resumed(
    namespace: dict[str, Any], names: Iterable[str], breaks: Breaks, then: Continuation
) -> dict[str, Any]:
    """Return what to put in place of the functions that resume a call, by their names.

    Args:
        namespace: the globals among which Dynamo put them.
        names: all names that it put there.
        breaks: where the trace stopped.
        then: makes them.
    """
    found: dict[str, Any] = {}
    for name in names:
        if not name.startswith(_RESUMED):
            continue
        value = namespace[name]
        code = _code_of(value)
        if code in breaks.left_alone:
            continue
        found[name] = _OnceForCells(value, then) if code.co_freevars else then.resume(value)
    return found


def _code_of(value: types.FunctionType) -> types.CodeType:
    """The code of a function that resumes, or that is made, for its cells, by this one."""
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        if name == "code":
            code: types.CodeType = cell.cell_contents
            return code
    return value.__code__


class _OnceForCells:
    """Makes the function that resumes one with cells; compiled for the cells that come first.

    Those of the user's closures stay. A call that makes cells of its own brings others each time:
    then the function stays as it is.
    """

    def __init__(
        self, make: Callable[[tuple[types.CellType, ...]], Any], then: Continuation
    ) -> None:
        self._make = make
        self._then = then
        self._cells: tuple[types.CellType, ...] | None = None
        self._made: Any = None

    def __call__(self, cells: tuple[types.CellType, ...]) -> Any:
        if self._cells is None:
            self._made = self._then.resume(self._make(cells))
            self._cells = cells
        if all(mine is given for mine, given in zip(self._cells, cells, strict=True)):
            return self._made
        return self._make(cells)
