# SPDX-License-Identifier: Apache-2.0
"""Numbers in all places of a module, and how what a call makes of them is compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = ["Counter", "Holder", "same"]


@dataclasses.dataclass
class Counter:
    calls: int = 5


class Holder(nn.Module):
    """A module with numbers in all places, which `function` computes with."""

    def __init__(self, function: Callable[[Holder, torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function
        self.step = 3
        self.t = 0.5
        self.rate = 0.25
        self.state = {"t": 0.5, "n": 2}
        self.inner = Counter()
        self.weights = [0.5, 0.25]
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)

    def numbers(self) -> dict[str, Any]:
        """All that is left behind, as it is written."""
        names = ("step", "t", "rate", "state", "weights")
        return {"inner": repr(self.inner), **{name: repr(getattr(self, name)) for name in names}}


def same(found: Any, expected: Any) -> None:
    """Compare results: tensors by value, numbers by type and value too."""
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, equal_nan=True)
    elif isinstance(expected, (tuple, list)):
        assert type(found) is type(expected)
        for mine, other in zip(found, expected, strict=True):
            same(mine, other)
    elif isinstance(expected, dict):
        same(list(found.items()), list(expected.items()))
    else:
        assert type(found) is type(expected)
        assert repr(found) == repr(expected)
