# SPDX-License-Identifier: Apache-2.0
"""generate() with a static cache gives the tokens that it gives without compilation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_models import make_model
from torch._dynamo.utils import counters


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_tokens(name: str, runtime: str) -> None:
    model, inputs = make_model(name)
    prompt = inputs["input_ids"][:, :5]
    settings: dict[str, Any] = {
        "max_new_tokens": 12,
        "do_sample": False,
        "cache_implementation": "static",
        "pad_token_id": 0,
        "eos_token_id": None,
    }
    expected = model.generate(prompt, **settings)
    assert expected.shape == (1, 17)
    counters.clear()
    options = {"runtime": runtime, "fallback": False}
    model.forward = torch.compile(model.forward, backend="hostjit", options=options)
    for _ in range(2):
        assert torch.equal(model.generate(prompt, **settings), expected)
    # The prompt's and that of each token after it.
    assert counters["stats"]["unique_graphs"] == 2
    assert not counters["graph_break"]
