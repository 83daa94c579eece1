# SPDX-License-Identifier: Apache-2.0
"""Files of what `hostjit.capture` recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import hostjit


def test_a_recording(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    @hostjit.capture(fallback=False)
    def step(x: torch.Tensor, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        state["h"].mul_(0.5).add_(model(x))
        return {"h": state["h"], "y": state["h"].relu()}

    x = torch.randn(1, 3)
    for _ in range(3):
        step(x, {"h": torch.randn(1, 2)})
    hostjit.save(step, tmp_path / "step.hostjit")
    loaded = hostjit.load(tmp_path / "step.hostjit")
    h = torch.randn(1, 2)
    state, expected = {"h": h.clone()}, h * 0.5 + model(x)
    found = loaded(x, state)
    assert found["h"] is state["h"]
    torch.testing.assert_close(found, {"h": expected, "y": expected.relu()})
    with pytest.raises(hostjit.Error, match="no program for this"):
        loaded(torch.randn(2, 3), state)


def test_values_that_were_read_are_compared_by_python(tmp_path: Path) -> None:
    @hostjit.capture(fallback=False)
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x

    for _ in range(3):
        branch(torch.ones(3))
    with pytest.raises(hostjit.Error, match="compared by Python code"):
        hostjit.save(branch, tmp_path / "branch.hostjit")


def test_static_inputs_are_memory_of_a_process(tmp_path: Path) -> None:
    @hostjit.capture(static_inputs=["x"], fallback=False)
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.ones(3)
    for _ in range(3):
        double(x)
    with pytest.raises(hostjit.Error, match="memory of this process"):
        hostjit.save(double, tmp_path / "double.hostjit")


def test_numbers_that_are_read_elsewhere_belong_to_a_process(tmp_path: Path) -> None:
    scale = 0.5

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * scale

    compiled = hostjit.compile(scaled, fallback=False)
    compiled(torch.ones(3))
    scale = 0.25
    compiled(torch.ones(3))
    with pytest.raises(hostjit.Error, match="objects of this process"):
        hostjit.save(compiled, tmp_path / "scaled.hostjit")
