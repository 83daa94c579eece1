# SPDX-License-Identifier: Apache-2.0
"""Compares what training leaves behind."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import Optimizer


def check_same_state(models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> None:
    """Fail unless two models and their optimizers have the same state."""
    found, expected = (model.state_dict() for model in models)
    torch.testing.assert_close(found, expected)
    found, expected = (optimizer.state_dict() for optimizer in optimizers)
    assert found["param_groups"] == expected["param_groups"]
    torch.testing.assert_close(found["state"], expected["state"])
