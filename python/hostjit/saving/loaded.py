# SPDX-License-Identifier: Apache-2.0
"""The Python side of a loaded function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.inspection import Inspection
from hostjit.program_compilation import ProgramCompilation
from hostjit.saving.specializations import signature_of

__all__ = ["LoadedFunction", "LoadedProgram"]

Target = Callable[..., Any] | None


class LoadedFunction(Inspection):
    """Answers the calls that a file has programs for; `target`, if there is one, the others.

    Attributes:
        parameters: the tensors that the programs hold and that had a name, by that.
        signatures: the calls that are answered, in words.
        recompiled: why the object code of the file was not used; "" where it was.
    """

    def __init__(
        self,
        name: str,
        programs: Sequence[_C.CompiledProgram],
        parameters: Mapping[str, torch.Tensor],
        signatures: Sequence[str],
        recompiled: str,
        target: _C.CompiledFunction | None,
    ) -> None:
        super().__init__()
        self._latest = programs[0] if programs else None
        self.__name__ = name
        self.parameters = dict(parameters)
        self.signatures = list(signatures)
        self.recompiled = recompiled
        self._target = target

    def specialize(
        self, function: _C.CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Return what the target's compilation makes; None to ask `run`."""
        if self._target is None:
            return None
        made: _C.Specialization | None = self._target.owner.specialize(function, args, kwargs)
        return made

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call that has no program: the target does; raises hostjit.Error without one."""
        if self._target is not None:
            return self._target.__wrapped__(*args, **kwargs)
        known = "\n  ".join(self.signatures)
        raise _C.Error(
            f"'{self.__name__}' was loaded without its Python code, and has no program for this "
            f"call:\n  {_call_to_text(args, kwargs)}\nIt has one for\n  {known}"
        )

    def arguments(self) -> tuple[Any, dict[str, Any]]:
        """Raise hostjit.Error: there is nothing to compile anew."""
        raise _C.Error(
            f"'{self.__name__}' was loaded from a file: it can't be compiled, copied or pickled; "
            "hostjit.save writes it to another file"
        )


class LoadedProgram(ProgramCompilation):
    """A Host IR program whose code was loaded.

    Attributes:
        parameters: none: they are inputs.
        recompiled: as of `LoadedFunction`.
    """

    def __init__(
        self,
        source: _C.Program,
        compiled: _C.CompiledProgram,
        runtime: str | None,
        reuse_outputs: bool,
        recompiled: str,
    ) -> None:
        super().__init__(source, runtime, reuse_outputs)
        self._latest = compiled
        self.parameters: dict[str, torch.Tensor] = {}
        self.recompiled = recompiled


def _call_to_text(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    try:
        call = _C.Specialization(
            args=args, kwargs=kwargs, program=None, bindings=(), output=("object", None)
        )
        return signature_of(call)
    except (RuntimeError, TypeError) as error:
        return f"one that can't be described: {error}"
