# SPDX-License-Identifier: Apache-2.0
"""The Python side of a loaded function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit import _C
from hostjit.capturing.by_fields import NONE_BY_FIELDS, ByFields
from hostjit.compiling.inspection import Inspection
from hostjit.compiling.program_compilation import ProgramCompilation
from hostjit.dims import without_dims

if TYPE_CHECKING:
    from hostjit.saving.numbers import NumberReader
    from hostjit.saving.replays import LoadedReplay

__all__ = ["Answer", "LoadedFunction", "LoadedProgram"]

Target = Callable[..., Any] | None


class Answer:
    """The calls that one specialization answers, in words.

    Attributes:
        signature: arguments and modes.
        conditions: what else is checked.
        replay: looks at a call; None where nothing else is checked.
        is_recorded: by `hostjit.capture`.
    """

    def __init__(
        self, signature: str, conditions: str, replay: LoadedReplay | None, is_recorded: bool
    ) -> None:
        self.signature = signature
        self.conditions = conditions
        self.replay = replay
        self.is_recorded = is_recorded

    def to_text(self, call: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return them with the reason why a call of this signature is none of them, if known."""
        reason = ""
        if self.replay is not None and call == self.signature:
            reason = self.replay.difference(args, kwargs)
        return self.signature + self.conditions + (f" (but {reason})" if reason else "")


class LoadedFunction(Inspection):
    """Answers the calls that a file has programs for; `target`, if there is one, the others.

    Attributes:
        parameters: the tensors that the programs hold and that had a name, by that.
        numbers: those that the programs read at each call and that no given object has, by name.
        places: where all numbers are that the programs read at each call, by name.
        optimizers: those that were given, by name.
        signatures: the calls that are answered, in words.
        recompiled: why the object code of the file was not used; "" where it was.
    """

    def __init__(
        self,
        name: str,
        programs: Sequence[_C.CompiledProgram],
        parameters: Mapping[str, torch.Tensor],
        numbers: NumberReader,
        optimizers: Mapping[str, torch.optim.Optimizer],
        recompiled: str,
        target: _C.CompiledFunction | None,
    ) -> None:
        super().__init__()
        self._latest = programs[0] if programs else None
        self.__name__ = name
        self.parameters = dict(parameters)
        self.numbers = numbers.values
        self.places = numbers.named
        self.optimizers = dict(optimizers)
        self.signatures: list[str] = []
        self.recompiled = recompiled
        self._target = target
        self._answers: list[Answer] = []
        self._by_fields = NONE_BY_FIELDS

    def add(self, answer: Answer, by_fields: Iterable[type] = ()) -> None:
        """Remember what is answered; `by_fields` are classes that arguments are opened of."""
        self._by_fields = self._by_fields.with_all_of(by_fields)
        self._answers.append(answer)
        self.signatures.append(answer.signature + answer.conditions)

    def specialize(
        self, function: _C.CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return what the target's compilation makes, None and a result, or None to ask `run`."""
        plain_args, plain_kwargs, dims = without_dims(args, kwargs)
        if dims and function.match(*plain_args, **plain_kwargs) is not None:
            return None, function(*plain_args, **plain_kwargs)  # for one value of a Dim
        return self._target and self._target.owner.specialize(function, args, kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call that has no program: the target does; raises hostjit.Error without one."""
        if self._target is not None:
            return self._target.__wrapped__(*args, **kwargs)
        args, kwargs, _ = without_dims(args, kwargs)
        call = _call_to_text(args, kwargs, self._by_fields)
        known = "".join(f"\n  {answer.to_text(call, args, kwargs)}" for answer in self._answers)
        text = (
            f"'{self.__name__}' was loaded without its Python code, and has no program for this "
            f"call:\n  {call}\nIt has one for{known}"
        )
        if any(answer.is_recorded for answer in self._answers):
            from hostjit.recording.errors import MismatchError

            raise MismatchError(text)
        raise _C.Error(text)

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


def _call_to_text(args: tuple[Any, ...], kwargs: dict[str, Any], by_fields: ByFields) -> str:
    from hostjit.saving.signatures import signature_of

    try:
        call = _C.Specialization(
            args=args,
            kwargs=kwargs,
            program=None,
            bindings=(),
            output=("object", None),
            by_fields=by_fields.described(),
        )
        return signature_of(call.describe())
    except (RuntimeError, TypeError) as error:
        return f"one that can't be described: {error}"
