# SPDX-License-Identifier: Apache-2.0
"""The Python side of a compiled Host IR program."""

from __future__ import annotations

from typing import Any

import torch

from hostjit import _C
from hostjit.compiling.code_choices import CodeChoices
from hostjit.compiling.inspection import Inspection

__all__ = ["ProgramCompilation"]


class ProgramCompilation(Inspection):
    """Runs one Host IR program; its types are its signature."""

    def __init__(
        self,
        program: _C.Program,
        runtime: str | None,
        reuse_outputs: bool = False,
        choices: CodeChoices | None = None,
    ) -> None:
        super().__init__()
        program.verify()
        self.program = program
        self.runtime = runtime
        self.reuse_outputs = reuse_outputs
        self.choices = choices or CodeChoices()
        self._latest = None

    def specialize(
        self, function: _C.CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Return a Specialization for these inputs; raises hostjit.Error if they don't fit."""
        if kwargs:
            raise TypeError(f"program '{self.program.name}' takes no keyword arguments")
        compiled = self.compiled()
        compiled.check(list(args))
        if not all(isinstance(argument, torch.Tensor) for argument in args):
            return None
        outputs = [("output", index) for index in range(len(self.program.outputs))]
        return _C.Specialization(
            args=args,
            kwargs={},
            program=compiled,
            bindings=list(range(len(args))),
            output=outputs[0] if len(outputs) == 1 else ("tuple", outputs),
            runtime=self.runtime,
            reuse_outputs=self.reuse_outputs,
        )

    def arguments(self) -> tuple[str, dict[str, Any]]:
        """Return what `hostjit.compile` may be called with to get the same."""
        given = {"runtime": self.runtime, "reuse_outputs": self.reuse_outputs}
        return str(self.program), {**given, **self.choices.keywords()}

    def run(self, *args: Any) -> Any:
        """Run on checked inputs, scalars included."""
        outputs = self.compiled().run(list(args), self.runtime)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _program_of_call(
        self, function: _C.CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.CompiledProgram | None:
        return self.compiled()

    def compiled(self) -> _C.CompiledProgram:
        """Return the compiled program, compiled when first asked for."""
        if self._latest is None:
            with self.choices.in_effect():
                self._latest = _C.CompiledProgram(self.program)
        return self._latest
