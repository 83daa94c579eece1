# SPDX-License-Identifier: Apache-2.0
"""Generators that code does not run to their end, within `try`, `finally` or `with`.

Python closes such a generator when nothing refers to it any more, which runs what is behind its
`finally`. Dynamo forgets it. A trace that ends so begins anew, and stops where code is called that
makes such a generator, or leaves that code to Python.

At a break Dynamo looks into all that it hands on: of a generator also into the globals of its code.
"""

from __future__ import annotations

import contextlib
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

from torch._dynamo.exc import RestartAnalysis, SkipFrame, unimplemented
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.symbolic_convert import InliningInstructionTranslator
from torch._dynamo.variables.functions import (
    LocalGeneratorFunctionVariable,
    LocalGeneratorObjectVariable,
)

from hostjit.replacements import replaced_attribute

__all__ = ["stopping_at_open_generators"]

# Of an output graph: the generators that code has made, each with that code.
_MADE = "_hostjit_generators"
# Of a generator, what says what it does.
_OF_CODE = ("code", "f_globals", "inline_tracer")
# What closes a generator, and what that is.
_CAUGHT = frozenset({"GeneratorExit", "BaseException"})
# CPython 3.12 and later: what makes a StopIteration that leaves a generator a RuntimeError.
_OF_EVERY_GENERATOR = "CALL_INTRINSIC_1"


_dropping: weakref.WeakSet[types.CodeType] = weakref.WeakSet()


@contextlib.contextmanager
def stopping_at_open_generators() -> Iterator[None]:
    """Have Dynamo leave code to Python that drops such a generator, in this thread."""
    owner = threading.get_ident()
    kind = LocalGeneratorFunctionVariable
    make = kind.call_function
    check = InliningInstructionTranslator.check_inlineable
    compile_subgraph = OutputGraph.compile_subgraph

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        made = make(self, tx, args, kwargs)
        # Those of `contextlib.contextmanager` are another kind: `with` runs them to their end.
        if threading.get_ident() == owner and type(made) is LocalGeneratorObjectVariable:
            vars(tx.output).setdefault(_MADE, []).append((made, tx.f_code))
        return made

    def compile_closed(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = vars(self).get(_MADE, ()) if threading.get_ident() == owner else ()
        dropping = {code for generator, code in made if _is_open(generator)}
        if not dropping:
            return compile_subgraph(self, *args, **kwargs)
        if self.root_tx.f_code in dropping:
            raise SkipFrame("it drops a generator that waits for its end")
        _dropping.update(dropping)
        raise RestartAnalysis(restart_reason="hostjit: code drops a generator")

    def check_inlineable(function: Any) -> Any:
        if threading.get_ident() == owner and function.get_code() in _dropping:
            unimplemented(
                gb_type="generator that is not run to its end",
                context=str(function.get_code()),
                explanation="The code drops a generator that waits for its end.",
                hints=[],
            )
        return check(function)

    looked_over = LocalGeneratorObjectVariable._nonvar_fields
    with (
        replaced_attribute(
            LocalGeneratorObjectVariable, "_nonvar_fields", {*looked_over, *_OF_CODE}
        ),
        replaced_attribute(kind, "call_function", call_function),
        replaced_attribute(
            InliningInstructionTranslator, "check_inlineable", staticmethod(check_inlineable)
        ),
        replaced_attribute(OutputGraph, "compile_subgraph", compile_closed),
    ):
        yield


def _is_open(generator: Any) -> bool:
    """Tell whether it has given something, and runs code when it is closed where it waits."""
    tracer = generator.inline_tracer
    if not _is_suspended(generator):
        return False
    return _is_closed_by_code(tracer.next_instruction.exn_tab_entry, tracer)


def _is_suspended(generator: Any) -> bool:
    if hasattr(generator, "_frame_state_suspended"):  # torch 2.15 and later
        return bool(generator._frame_state_suspended())
    return not (generator._is_generator_exhausted() or generator._is_generator_just_started())


def _is_closed_by_code(entry: Any, tracer: Any) -> bool:
    """Tell whether a handler, or one around it, does something at a GeneratorExit.

    So does what is behind `finally`, `with` or a bare `except`; `except IndexError` does not.
    """
    while entry is not None:
        instruction = entry.target
        while instruction.opname != "RERAISE":
            names = []
            while instruction.opname == "PUSH_EXC_INFO" or instruction.opname.startswith("LOAD_"):
                names.append(instruction.argval)
                instruction = _next(instruction, tracer)
            while instruction.opname in ("BUILD_TUPLE", "COPY", "POP_EXCEPT", _OF_EVERY_GENERATOR):
                instruction = _next(instruction, tracer)
            if instruction.opname == "CHECK_EXC_MATCH" and _CAUGHT.isdisjoint(names):
                instruction = _next(instruction, tracer).target  # of the jump, where it is another
            elif instruction.opname != "RERAISE":
                return True
        entry = instruction.exn_tab_entry
    return False


def _next(instruction: Any, tracer: Any) -> Any:
    return tracer.instructions[tracer.indexof[instruction] + 1]
