# SPDX-License-Identifier: Apache-2.0
"""`FusionDefinition`: a program that is defined operation by operation, as with nvFuser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import Graph

from hostjit import _C
from hostjit.fusion.defining import HOW_TO_DEFINE, Definition, State
from hostjit.fusion.graph import finished_graph
from hostjit.fusion.inputs import TensorInput, check_inputs
from hostjit.fusion.source import definition_text, script_text

__all__ = ["FusionDefinition"]

_SEQUENCES = frozenset((list, tuple))


class FusionDefinition(Definition):
    """A program of tensors and scalars, with the names of nvFuser's Python front end.

    Inputs are what `define_tensor`, `from_pytorch`, symbolic `define_scalar` and `define_vector`
    define, in that order. `ops` adds operations, `add_output` says what is returned or written
    back. A definition is a context manager, or a subclass with a method `definition(self)`.

    Example:
        with FusionDefinition() as fd:
            x = fd.define_tensor(shape=[-1, 4], contiguity=True)
            fd.add_output(fd.ops.relu(fd.ops.add(x, 1.0)))
        (y,) = fd.execute([torch.randn(3, 4)])
    """

    def __init__(self) -> None:
        super().__init__()
        self._compiled: dict[torch.device | None, _C.CompiledFunction] = {}
        self._last_inputs: list[Any] | None = None

    def __enter__(self) -> FusionDefinition:
        if self.state is not State.NEW:
            raise _C.Error(f"this FusionDefinition is {self.state.value}: make another")
        self.state = State.OPEN
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.state = State.DEFINED if kind is None else State.FAILED

    def definition(self) -> None:
        """Define inputs, operations and outputs; for subclasses."""
        raise _C.Error(f"the fusion is not defined: {HOW_TO_DEFINE}")

    @property
    def sched(self) -> Any:
        """Raise hostjit.Error: hostjit has no schedules."""
        raise _C.Error("fd.sched: hostjit schedules by itself; leave schedules out")

    def graph(self, device: torch.device | None = None) -> Graph:
        """Return the fusion as a graph that returns a list.

        Args:
            device: of what is made of nothing, in a fusion without tensor inputs.

        Raises hostjit.Error where the definition is not complete.
        """
        self.finish()
        tensors = [i for i in self.inputs if isinstance(i, TensorInput)]
        on = next((t for t in tensors if not t.is_cpu), tensors[0] if tensors else None)
        return finished_graph(self._graph, self._outputs, self.placed, on.name if on else device)

    def finish(self) -> None:
        """Make the definition final; raises hostjit.Error where it is not complete."""
        is_subclass = type(self).definition is not FusionDefinition.definition
        if self.state is State.NEW and is_subclass:
            with self:
                self.definition()
        if self.state is State.NEW:
            raise _C.Error(f"the fusion is not defined: {HOW_TO_DEFINE}")
        if self.state is not State.DEFINED:
            raise _C.Error(f"the fusion cannot run: it is {self.state.value}")
        if getattr(type(self), "schedule", None) is not None:
            raise _C.Error("schedule: hostjit schedules by itself; leave the method out")
        if not self._outputs:
            raise _C.Error("the fusion is empty: it has no outputs, see add_output")

    def check(self, values: Sequence[Any]) -> None:
        """Raise hostjit.Error for inputs that contradict the definition."""
        check_inputs(self.inputs, values)

    def execute(
        self,
        inputs: Iterable[Any],
        *,
        device: torch.device | str | int | None = None,
        save_repro_inputs: bool = False,
    ) -> list[torch.Tensor]:
        """Run the fusion; the first call compiles it.

        `hostjit.compile(fd)` returns what is called here, which takes the inputs one by one.

        Args:
            inputs: tensors and numbers in the order of their definition; a list or tuple of numbers
                stands for the scalars of `define_vector`.
            device: that of the inputs; it decides where a fusion without tensor inputs runs.
            save_repro_inputs: keep shapes and dtypes of the inputs for `last_repro_script`.

        Returns:
            The outputs without an `alias_input`, in the order in which they were added.

        Raises:
            hostjit.Error: the definition is not complete, or inputs contradict it.
        """
        values = inputs if isinstance(inputs, list) else list(inputs)
        if not _SEQUENCES.isdisjoint(map(type, values)):
            values = [x for v in values for x in (v if isinstance(v, (list, tuple)) else [v])]
        if save_repro_inputs:
            self._last_inputs = [
                _without_memory(value) if isinstance(value, torch.Tensor) else value
                for value in values
            ]
        on = None if device is None else self._device_of(device, values)
        compiled = self._compiled.get(on)
        if compiled is None:
            from hostjit.fusion.compilation import compile_fusion

            compiled = self._compiled[on] = compile_fusion(self, device=on)
        found: list[torch.Tensor] = compiled(*values)
        return found

    def _device_of(
        self, device: torch.device | str | int, values: Sequence[Any]
    ) -> torch.device | None:
        """The device of a fusion without tensor inputs; raises Error where inputs are on others."""
        on = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if str(on) == "cuda":
            on = torch.device("cuda", torch.cuda.current_device())
        for position, known in enumerate(self.inputs[: len(values)]):
            value = values[position]
            is_elsewhere = isinstance(value, torch.Tensor) and value.device != on
            if is_elsewhere and isinstance(known, TensorInput) and not known.is_cpu:
                raise _C.Error(
                    f"fusion input {position} ({known.name}): expected device {on}, found "
                    f"{value.device}"
                )
        has_tensors = any(isinstance(known, TensorInput) for known in self.inputs)
        return None if has_tensors else on

    def __repr__(self) -> str:
        """Return Python that defines the same: a function `nvfuser_fusion(fd)`."""
        return definition_text(self._lines)

    def repro_script_for(self, inputs: Sequence[Any] | None = None) -> str:
        """Return a script that defines the fusion and, given inputs, runs it on such."""
        return script_text(repr(self), inputs)

    def last_repro_script(self) -> str:
        """Return such a script for the last inputs of `execute(..., save_repro_inputs=True)`."""
        if self._last_inputs is None:
            raise _C.Error("last_repro_script: call execute(inputs, save_repro_inputs=True) first")
        return self.repro_script_for(self._last_inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle what it defines, once that is complete."""
        self.finish()
        return _of_text, (repr(self),)


def _of_text(text: str) -> FusionDefinition:
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    with FusionDefinition() as fusion:
        namespace["nvfuser_fusion"](fusion)
    return fusion


def _without_memory(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
