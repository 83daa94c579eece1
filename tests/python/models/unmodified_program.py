# SPDX-License-Identifier: Apache-2.0
"""A program that knows of torch.compile, and of no backend: run by test_override.py."""

from __future__ import annotations

import copy
import sys

import torch
from same_as_eager import assert_same
from small_models import make_model
from torch._dynamo.utils import counters


def forward(name: str) -> None:
    model, inputs = make_model(name)
    with torch.no_grad():
        assert_same(torch.compile(model)(**inputs), model(**inputs))


def train(name: str) -> None:
    eager, inputs = make_model(name)
    inputs["labels"] = torch.tensor([3]) if name == "vit" else inputs["input_ids"].clone()
    trained = copy.deepcopy(eager)
    for model, call in ((eager, eager), (trained, torch.compile(trained))):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        call(**inputs).loss.backward()
        optimizer.step()
    torch.testing.assert_close(trained.state_dict(), eager.state_dict())


def generate(name: str) -> None:
    model, inputs = make_model(name)
    settings = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": "static"}
    expected = model.generate(**inputs, pad_token_id=0, **settings)
    model.forward = torch.compile(model.forward, fullgraph=True)
    assert torch.equal(model.generate(**inputs, pad_token_id=0, **settings), expected)


if __name__ == "__main__":
    tasks = {"forward": forward, "train": train, "generate": generate}
    task, *names = sys.argv[1:]
    for name in names:
        tasks[task](name)
    print("by hostjit:", "hostjit.backend.graph_compilation" in sys.modules)
    print("by Inductor:", any(key.startswith("fxgraph_cache") for key in counters["inductor"]))
