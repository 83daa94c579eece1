# SPDX-License-Identifier: Apache-2.0
"""Steps of training through torch.compile: losses, gradients and updated parameters."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from small_models import make_model


def step(
    model: Any, call: Any, inputs: dict[str, torch.Tensor], optimizer: torch.optim.Optimizer
) -> tuple[torch.Tensor, dict[str, torch.Tensor | None]]:
    optimizer.zero_grad()
    loss = call(**inputs).loss
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    optimizer.step()
    return loss.detach(), gradients


@pytest.mark.parametrize("name", ["gpt2", "bert", "vit"])
def test_two_steps(name: str, runtime: str) -> None:
    """With dropout: random numbers are drawn as eager draws them."""
    eager, inputs = make_model(name)
    inputs["labels"] = torch.tensor([3]) if name == "vit" else inputs["input_ids"].clone()
    trained = copy.deepcopy(eager.train())
    # AdamW divides by the size of a gradient; eps keeps the rounding of the smallest ones small.
    optimizers = [torch.optim.AdamW(m.parameters(), eps=1e-4) for m in (eager, trained)]
    call = torch.compile(trained, backend="hostjit", options={"runtime": runtime})
    for seed in range(2):
        torch.manual_seed(seed)
        expected = step(eager, eager, inputs, optimizers[0])
        torch.manual_seed(seed)
        found = step(trained, call, inputs, optimizers[1])
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(trained.state_dict(), eager.state_dict())
