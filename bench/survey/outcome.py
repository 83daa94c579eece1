# SPDX-License-Identifier: Apache-2.0
"""What a comparison found, and how results are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

# Models add up some hundred products through several layers, in another order than eager does.
RELATIVE, ABSOLUTE = 1e-4, 2e-5
BATCH_SECONDS, BATCHES = 0.02, 5


@dataclass
class Outcome:
    """Of one case, compiled one way.

    Attributes:
        differences: where a result isn't eager's, with the largest error there.
        largest_error: of all numbers that were compared.
        programs: after calls with all sizes; None where nothing tells.
        first_calls: seconds of this process, of each call in order.
        microseconds: of a later call; of eager's.
        warnings: what hostjit said.
        error: an exception that eager does not raise.
    """

    case: str
    way: str
    differences: list[str] = field(default_factory=list)
    largest_error: float = 0.0
    programs: int | None = None
    first_calls: list[float] = field(default_factory=list)
    microseconds: float | None = None
    eager_microseconds: float | None = None
    warnings: list[str] = field(default_factory=list)
    error: str = ""

    def compare(self, where: str, found: Any, expected: Any) -> None:
        """Note what differs in two results."""
        ours, eager = dict(leaves(found)), dict(leaves(expected))
        if type(found) is not type(expected) or list(ours) != list(eager):
            self.differences.append(f"{where}: another structure")
            return
        for path, wanted in eager.items():
            self._compare_leaf(f"{where}{path}", ours[path], wanted)

    def _compare_leaf(self, where: str, found: Any, wanted: Any) -> None:
        if not isinstance(wanted, torch.Tensor):
            found, wanted = torch.tensor(found), torch.tensor(wanted)
        if wanted.layout is not torch.strided:
            found, wanted = found.to_dense(), wanted.to_dense()
        found, wanted = found.detach(), wanted.detach()
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            self.differences.append(f"{where}: {found.shape} {found.dtype}")
            return
        if not wanted.numel():
            return
        wide = torch.complex128 if wanted.is_complex() else torch.float64
        error = (found.to(wide) - wanted.to(wide)).abs().nan_to_num(0).max().item()
        self.largest_error = max(self.largest_error, error)
        if not torch.allclose(found, wanted, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True):
            self.differences.append(f"{where}: off by {error:.1e}")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Give every tensor and number in a result with its place there."""
    if isinstance(value, (torch.Tensor, int, float)):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    elif type(value).__module__.startswith("transformers.cache_utils"):
        yield from leaves([vars(layer) for layer in value.layers], path)


def microseconds(call: Callable[[], Any]) -> float:
    """Return the shortest time of a call, over batches of some milliseconds."""
    calls, seconds = 1, 0.0
    while True:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        seconds = time.perf_counter() - begin
        if seconds > BATCH_SECONDS:
            break
        calls *= 2
    for _ in range(BATCHES):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        seconds = min(seconds, time.perf_counter() - begin)
    return seconds / calls * 1e6
