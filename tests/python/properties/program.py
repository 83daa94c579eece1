# SPDX-License-Identifier: Apache-2.0
"""A random program as Python text, written statement by statement while eager runs it."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from operands import Draw, Operand, operands
from torch import Tensor


class UnfitError(Exception):
    """No value of the program is what a statement needs."""


@dataclass(frozen=True)
class Statement:
    """An expression over earlier values.

    exact: eager's result is the only right one, up to the payload of a NaN.
    """

    expression: str
    exact: bool


@dataclass
class Program:
    """Inputs, statements that eager accepts, and expressions that it refuses.

    style: the values of all inputs, one of operands.STYLES.
    values: what eager made of the inputs' first variant, by name.
    inexact: the names of values that may be off by rounding; a statement whose result may jump
        for a small change of an operand takes no such value.
    final: the names of values that no statement takes: inexact ones of the half types, where a
        small difference may round to a large one.
    """

    style: str
    inputs: dict[str, Operand] = field(default_factory=dict)
    values: dict[str, Tensor] = field(default_factory=dict)
    statements: dict[str, Statement] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    inexact: set[str] = field(default_factory=set)
    final: set[str] = field(default_factory=set)

    def add_input(self, operand: Operand) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = operand
        self.values[name] = operand.make()
        return name

    def new(
        self, draw: Draw, dtype: torch.dtype, shape: Sequence[int], limit: int | None = None
    ) -> str:
        """Add an input of this shape, in any layout."""
        return self.add_input(draw(operands(dtype, tuple(shape), self.style, limit)))

    def pick(
        self,
        draw: Draw,
        fits: Callable[[Tensor], bool] = lambda _: True,
        *,
        inexact: bool = False,
    ) -> str:
        """Return the name of an earlier value for which `fits` holds."""
        names = [
            name
            for name, value in self.values.items()
            if fits(value) and name not in self.final and (inexact or name not in self.inexact)
        ]
        if not names:
            raise UnfitError
        return draw(st.sampled_from(names))

    def run(self, statement: Statement) -> None:
        """Append a statement; one that eager refuses is kept aside."""
        names = {"torch": torch, "F": torch.nn.functional, **self.values}
        try:
            value = eval(statement.expression, names)
        except (SyntaxError, NameError):
            raise
        except Exception:
            self.refused.append(statement.expression)
            return
        name = f"y{len(self.statements)}"
        self.statements[name] = statement
        self.values[name] = value
        words = {word for word in self.inexact if word in statement.expression}
        if words or not statement.exact:
            self.inexact.add(name)
        if name in self.inexact and value.dtype in (torch.float16, torch.bfloat16):
            self.final.add(name)

    def source(self) -> str:
        lines = [f"{name} = {text.expression}" for name, text in self.statements.items()]
        return self._source([*lines, f"return {', '.join(self.statements)},"])

    def _source(self, lines: Sequence[str]) -> str:
        return "\n    ".join([f"def program({', '.join(self.inputs)}):", *lines]) + "\n"

    def function(self) -> Callable[..., Any]:
        return define(self.source())

    def refused_function(self, expression: str) -> Callable[..., Any]:
        """Return the program up to here, with an expression that eager refuses at its end."""
        lines = [f"{name} = {text.expression}" for name, text in self.statements.items()]
        return define(self._source([*lines, f"return {expression}"]))

    def make_inputs(self, variant: int = 0) -> list[Tensor]:
        return [operand.make(variant) for operand in self.inputs.values()]

    def __repr__(self) -> str:
        inputs = [f"# {name}: {operand}" for name, operand in self.inputs.items()]
        return "\n".join(["", self.source(), *inputs, *(f"# refused: {r}" for r in self.refused)])


def define(source: str) -> Callable[..., Any]:
    """Return the function `program` of this text; tracebacks and Dynamo can show its lines."""
    filename = f"<program {abs(hash(source))}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(compile(source, filename, "exec"), names)
    function: Callable[..., Any] = names["program"]
    return function
