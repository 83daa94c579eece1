# SPDX-License-Identifier: Apache-2.0
"""Runs loops whose passes are compiled, and compares them with eager ones."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten

import hostjit
from hostjit import _C
from hostjit.bytecode.loops import PassVariables, with_compiled_passes
from hostjit.bytecode.making import function_of
from hostjit.parts.passes import PassOfIterator, compile_pass
from hostjit.parts.whole import Whole

__all__ = ["Passes", "check", "compiled", "inputs"]


class Passes:
    """A function whose loop calls compiled passes."""

    def __init__(self, function: types.FunctionType, runtime: str = "jit") -> None:
        from hostjit.compiling.options import Options  # which Dynamo has to be imported ahead of

        self._made: list[Any] = []

        def compile_it(code: types.CodeType, variables: PassVariables | None) -> Any:
            body = function_of(function, code)
            whole = Whole(function.__name__, set(), Options(runtime=runtime))
            self._made.append(compile_pass(body, whole, variables))
            return self._made[-1]

        lines = {line for _, _, line in function.__code__.co_lines() if line is not None}
        code = with_compiled_passes(
            function.__code__, function.__globals__, lines, compile_it, lambda found: found
        )
        assert code is not None
        self.run = function_of(function, code)

    @property
    def compiled(self) -> list[_C.CompiledFunction]:
        """What was called for passes."""
        return [
            function
            for made in self._made
            for function in (made.functions if isinstance(made, PassOfIterator) else [made])
        ]

    def programs(self) -> list[str]:
        """Return the programs that run several passes, as text."""
        recorded = [each.owner._recorded for each in self.compiled]
        found = [each for some in recorded if some is not None for each in some.specializations]
        texts = [str(each.program.program) for each in found]
        return [text for text in texts if "while(" in text]

    def loops(self) -> int:
        """Count the programs that run several passes."""
        return len(self.programs())


def compiled(how: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function by `hostjit.compile`, or by `torch.compile` with the backend."""
    torch._dynamo.reset()
    if how == "hostjit.compile":
        return hostjit.compile(function)
    return torch.compile(function, backend="hostjit")


def inputs() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, dtype=torch.float64) + shift / 4 for shift in range(8)]


def check(function: Any, run: Callable[..., Any]) -> None:
    """Compare what calls return, which of it is the same object, and what they write."""
    for number, x in enumerate(inputs()):
        given, kept = x.clone(), x.clone()
        torch.manual_seed(number)
        expected = function(kept)
        torch.manual_seed(number)
        found = run(given)
        assert_close(given, kept)
        (here, form), (there, expected_form) = tree_flatten(found), tree_flatten(expected)
        assert form == expected_form
        assert [*map(type, here)] == [*map(type, there)]
        for value, other in zip(here, there, strict=True):
            if isinstance(other, (Tensor, float)):
                assert_close(value, other, rtol=1e-9, atol=1e-9)
            else:
                assert value == other
        assert objects([given, *here]) == objects([kept, *there])
        assert [each.requires_grad for each in tensors(here)] == [
            each.requires_grad for each in tensors(there)
        ]


def tensors(values: list[Any]) -> list[Tensor]:
    return [each for each in values if isinstance(each, Tensor)]


def objects(values: list[Any]) -> list[int]:
    """Tell of each tensor which is the first that is the same object."""
    found = tensors(values)
    return [next(i for i, other in enumerate(found) if other is each) for each in found]
