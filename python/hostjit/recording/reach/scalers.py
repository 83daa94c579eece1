# SPDX-License-Identifier: Apache-2.0
"""What a `torch.amp.GradScaler` knows of optimizers between its methods.

`update` puts a new dict in the place of that, which is empty as the old one was: so it is compared
by what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from hostjit.recording.reach.entries import Entry, all_same

__all__ = ["STATES", "ScalerStates"]

STATES = "_per_optimizer_states"


class ScalerStates(Entry):
    """The states of optimizers that a scaler has unscaled or stepped, and its attributes' names."""

    asked = True

    def __init__(self, scaler: torch.amp.GradScaler, path: str) -> None:
        super().__init__(f"{path}.{STATES}")
        self._scaler = scaler
        self._expected = list(self._find())

    def _find(self) -> Iterator[Any]:
        yield from vars(self._scaler)
        for key, state in vars(self._scaler).get(STATES, {}).items():
            yield key
            yield state["stage"]
            for device, found in state["found_inf_per_device"].items():
                yield device
                yield found

    def tensors(self) -> list[torch.Tensor]:
        """The tensors in them."""
        return [value for value in self._expected if isinstance(value, torch.Tensor)]

    def differs(self) -> bool:
        return not all_same(list(self._find()), self._expected)
