# SPDX-License-Identifier: Apache-2.0
"""Compares the values that recorded Python code has seen with those of a call, ahead of its replay.

The program that computes them writes nothing that others see, and random generators are put back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.recording.running.generator_draws import address_of

__all__ = ["VALUE_READ", "ReadGuard", "compares_in_call_path"]

VALUE_READ = "a value read at"
"""How texts begin that say which value of a call is another than was read."""


def compares_in_call_path(
    tensors: Sequence[torch.Tensor], generators: Sequence[torch.Generator]
) -> bool:
    """Tell whether `_C.Specialization` may compare what was read, if no random numbers are drawn.

    `tensors`: the values, and those that they are computed of. `generators`: as of `ReadGuard`.
    """
    return not generators and all(x.is_cpu for x in tensors)


class ReadGuard:
    """The values that were read, and the program that computes them.

    Args:
        program: computes them, and what it hands on; without an effect.
        inputs: where its inputs are found, as `_C.Specialization` takes bindings. Open numbers are
            among them only where the call path compares.
        expected: the values that were read.
        where: the lines that read them, "file:line" each.
        generators: those that operators are given; the program may draw from them.
        is_random: the program draws random numbers.
        runtime: as of `hostjit.compile`.
    """

    def __init__(
        self,
        program: _C.CompiledProgram,
        inputs: Sequence[Any],
        expected: Sequence[torch.Tensor],
        where: Sequence[str],
        *,
        generators: Sequence[torch.Generator] = (),
        is_random: bool,
        runtime: str | None,
    ) -> None:
        self.program = program
        self.inputs = list(inputs)
        self.expected = list(expected)
        self.where = list(where)
        self.generators = list({address_of(found): found for found in generators}.values())
        self.is_random = is_random
        self.runtime = runtime
        self._bytes = [_bytes(values) for values in expected]

    def compiled(self) -> tuple[Any, ...] | None:
        """Return it as `_C.Specialization` takes it; None where it is left to `holds`."""
        tensors = [*self.expected, *(x for x in self.inputs if isinstance(x, torch.Tensor))]
        if self.is_random or not compares_in_call_path(tensors, self.generators):
            return None
        expected = [x.detach().contiguous() for x in self.expected]
        return self.program, self.inputs, expected, self.runtime

    def holds(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Tell whether a call reads the same values."""
        found = self._compute(leaves)
        return [*map(_bytes, found)] == self._bytes

    def difference(self, leaves: Sequence[torch.Tensor]) -> str:
        """Say which value differs; "" if none does."""
        if any(type(binding) is tuple and binding[0] == "open" for binding in self.inputs):
            # The call path compares those that follow from numbers of the call.
            return f"{VALUE_READ} {self.where[0]}, or at a later line, is another"
        for index, found in enumerate(self._compute(leaves)):
            if _bytes(found) != self._bytes[index]:
                expected, now = self.expected[index].tolist(), found.tolist()
                return f"{VALUE_READ} {self.where[index]}: expected {expected}, found {now}"
        return ""

    def _compute(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values of a call like those expected."""
        found = zip(self._run(leaves), self.expected, strict=False)
        return [
            x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=as_read.dtype, device="cpu")
            for x, as_read in found
        ]

    def _run(self, leaves: Sequence[torch.Tensor]) -> list[Any]:
        inputs = [_find(binding, leaves) for binding in self.inputs]
        with torch.no_grad(), self._generators_kept(inputs) if self.is_random else _nothing():
            return self.program.run(inputs, self.runtime)

    @contextlib.contextmanager
    def _generators_kept(self, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
        devices = sorted({x.device.index for x in tensors if x.device.type == "cuda"})
        states = [generator.get_state() for generator in self.generators]
        try:
            with torch.random.fork_rng(devices):
                yield
        finally:
            for generator, state in zip(self.generators, states, strict=True):
                generator.set_state(state)


_nothing = contextlib.nullcontext


def _find(binding: Any, leaves: Sequence[torch.Tensor]) -> torch.Tensor:
    if isinstance(binding, int):
        return leaves[binding]
    if isinstance(binding, torch.Tensor):
        return binding
    found: torch.Tensor
    kind, owner, *place = binding
    if kind == "gradient":
        found = owner.grad
        return found
    if kind == "attribute":
        found = owner[place[0]]
        return found
    key, position = place
    value = owner[key] if position is None else owner[key][position]
    return torch.tensor(value, dtype=torch.float64, device="cpu")


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
