# SPDX-License-Identifier: Apache-2.0
"""Compares the values that recorded Python code has seen with those of a call, ahead of its replay.

The program that computes them writes nothing that others see, and random generators are put back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from hostjit.capturing.program import ArgumentLeaf, BoundTensor, InputBinding
from hostjit.capturing.tracing import is_random
from hostjit.recording.inputs import LiveInput
from hostjit.recording.program import guard_graph
from hostjit.recording.recorder import Recorder

if TYPE_CHECKING:
    from hostjit.recording.recordings import Recordings

__all__ = ["ReadGuard"]


class ReadGuard:
    """The values that were read, and the program that computes them."""

    def __init__(self, owner: Recordings, recorder: Recorder) -> None:
        """Raises CaptureError where they cannot be computed without an effect."""
        module, self._inputs = guard_graph(recorder, recorder.reads)
        self._is_random = is_random(module.graph)
        self._program = owner.compile_graph(module.graph, f"{owner.name}_reads")
        self._runtime = owner.runtime
        self._expected = [read.expected for read in recorder.reads]
        self._bytes = [_bytes(read.expected) for read in recorder.reads]
        self._where = [read.where for read in recorder.reads]

    def holds(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Tell whether a call reads the same values."""
        found = self._compute(leaves)
        return all(_bytes(x) == was for x, was in zip(found, self._bytes, strict=True))

    def difference(self, leaves: Sequence[torch.Tensor]) -> str:
        """Say which value differs; "" if none does."""
        for index, found in enumerate(self._compute(leaves)):
            if _bytes(found) != self._bytes[index]:
                expected, now = self._expected[index].tolist(), found.tolist()
                return f"a value read at {self._where[index]}: expected {expected}, found {now}"
        return ""

    def _compute(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        inputs = [_find(binding, leaves) for binding in self._inputs]
        with torch.no_grad(), _generators_kept(inputs) if self._is_random else _nothing():
            return self._program.run(inputs, self._runtime)


_nothing = contextlib.nullcontext


def _find(binding: InputBinding, leaves: Sequence[torch.Tensor]) -> torch.Tensor:
    if isinstance(binding, ArgumentLeaf):
        return leaves[binding.index]
    assert isinstance(binding, BoundTensor)
    if not isinstance(binding, LiveInput):
        return binding.tensor
    found: torch.Tensor
    kind, owner, *place = binding.description
    if kind == "gradient":
        found = owner.grad
        return found
    key, position = place
    value = owner[key] if position is None else owner[key][position]
    return torch.tensor(value, dtype=torch.float64)


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


@contextlib.contextmanager
def _generators_kept(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    devices = sorted({x.device.index for x in tensors if x.device.type == "cuda"})
    with torch.random.fork_rng(devices):
        yield
