# SPDX-License-Identifier: Apache-2.0
"""Through what the operators are called: each subject makes a callable of a callable."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import torch

import hostjit

__all__ = ["SUBJECTS", "Subject", "subject_named"]


@dataclasses.dataclass(frozen=True)
class Subject:
    """A way to compile, and the ways to run what came out.

    Attributes:
        compile: makes the callable that is compared with its argument.
        runs: pairs of a name and a context; the callable is called once in each, in this order.
        shared: all calls of a case that call one operator call one compiled callable, which meets
            other sizes, other numbers and other kinds of arguments then.
        programs: how many programs a compiled callable has. Each call is followed by calls of the
            same callable with other sizes then, which are to need one more program together.
    """

    compile: Callable[[Callable[..., Any]], Callable[..., Any]]
    runs: tuple[tuple[str, Callable[[], Any]], ...]
    shared: bool = False
    programs: Callable[[Any], int] | None = None


def _torch_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    # Dynamo counts the compilations of one code object, which all operators are called from.
    torch.compiler.reset()
    compiled: Callable[..., Any] = torch.compile(function, backend="hostjit")
    return compiled


# The second run of the JIT finds the specialization that the first made.
_RUNTIMES = (
    ("first call", lambda: hostjit.runtime("jit")),
    ("second call", lambda: hostjit.runtime("jit")),
    ("evaluator", lambda: hostjit.runtime("evaluator")),
)
# However many kinds of calls there are, each is compiled.
_RUNTIMES_WITHOUT_LIMIT = (
    ("first call", lambda: hostjit.knobs(enable="host_ir_jit", disable="recompile_limit")),
    ("second call", lambda: hostjit.knobs(enable="host_ir_jit", disable="recompile_limit")),
    ("evaluator", lambda: hostjit.knobs(disable="host_ir_jit,recompile_limit")),
)

SUBJECTS = {
    "hostjit.compile": Subject(hostjit.compile, _RUNTIMES),
    "hostjit.compile-once": Subject(hostjit.compile, _RUNTIMES_WITHOUT_LIMIT, shared=True),
    "hostjit.compile-resized": Subject(
        hostjit.compile, _RUNTIMES_WITHOUT_LIMIT, programs=lambda made: len(made.specializations)
    ),
    "torch.compile": Subject(_torch_compile, _RUNTIMES),
    # Whatever fails here is a fault of the harness.
    "eager": Subject(lambda function: function, (("eager", contextlib.nullcontext),)),
}


def subject_named(name: str) -> Subject:
    """Return a subject of the table, or the one at "module:attribute"."""
    if name in SUBJECTS:
        return SUBJECTS[name]
    module, _, attribute = name.partition(":")
    if not attribute:
        raise SystemExit(f"unknown subject '{name}', expected one of {', '.join(SUBJECTS)}")
    found = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, Subject)
    return found
