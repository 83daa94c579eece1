# SPDX-License-Identifier: Apache-2.0
"""Placeholder for the guards until they are derived."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch


@dataclasses.dataclass
class Guards:
    bound_tensors: list[torch.Tensor]

    @staticmethod
    def derive(traced: Any, inputs: Any, args: Any, kwargs: Any) -> Guards:
        return Guards([])

    def remember_outputs(self, spec: Any) -> None:
        pass
