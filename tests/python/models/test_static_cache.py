# SPDX-License-Identifier: Apache-2.0
"""Steps with a static cache: transformers writes it inside of a `try`, for devices that cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from same_as_eager import tensors
from small_models import make_model
from torch.testing import assert_close

import hostjit

LENGTH = 12


def step(model: Any, token: torch.Tensor, cache: Any) -> torch.Tensor:
    logits: torch.Tensor = model(token, past_key_values=cache).logits
    return logits


def filled(model: Any, prompt: torch.Tensor) -> Any:
    cache = transformers.StaticCache(config=model.config, max_cache_len=LENGTH)
    step(model, prompt, cache)
    return cache


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_steps(name: str, runtime: str) -> None:
    model, inputs = make_model(name)
    prompt, rest = inputs["input_ids"][:, :5], inputs["input_ids"][:, 5:]
    fast = hostjit.compile(model, runtime=runtime, fallback=False)
    with torch.no_grad():
        ours, eager = filled(model, prompt), filled(model, prompt)
        for place in range(LENGTH - 5):
            token = rest[:, place : place + 1]
            assert_close(step(fast, token, ours), step(model, token, eager))
            assert_close(dict(tensors(ours)), dict(tensors(eager)))
        assert len(fast.specializations) == 1
        # No room is left: that is no error which transformers handles.
        for call, cache in ((fast, ours), (model, eager)):
            with pytest.raises(IndexError, match=r"index_copy_\(\): index 12 is out of bounds"):
                step(call, rest[:, :1], cache)
