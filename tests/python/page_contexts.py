# SPDX-License-Identifier: Apache-2.0
"""What the reader of a how-to page has already: code that runs before each of its Python blocks.

The last text of a page that has one more than blocks runs after them, and says what must hold then.
"""

from __future__ import annotations

__all__ = ["CONTEXTS"]

_IMPORTS = "import torch; from torch import nn; import hostjit; torch.manual_seed(0)"
_LINEAR = _IMPORTS + "; model = nn.Linear(16, 4); x = torch.randn(2, 16)"

CONTEXTS = {
    "compile_for_any_shape": [
        _LINEAR,
        """
assert len(fast.specializations) == 2
def attend(query, keys):
    weights = torch.softmax(keys @ query[..., None], dim=1)
    return (weights * keys).sum(dim=1)
x, cache, length = torch.randn(2, 8), torch.zeros(2, 16, 8), 6
""",
        """
assert len(fast.specializations) == 2
from dataclasses import dataclass
x, v, steps = torch.randn(2, 8), torch.randn(2, 8), 6
def schedule(step):
    return 0.5 + step
""",
        "assert len(fast.specializations) == 2",
        """
def model(rows, mask):
    return (rows * mask[..., None]).sum(1)
""",
        """
fast = hostjit.compile(encode, fallback=False)
for longest in (4, 6, 3, 8):
    padded, lengths = torch.randn(2, 8, 3), torch.tensor([longest, 2])
    torch.testing.assert_close(fast(padded, lengths), encode(padded, lengths))
assert len(fast.specializations) == 1
""",
    ],
    "debug_a_wrong_result": [
        _LINEAR,
        "batches = [x] * 3; step = hostjit.compile(lambda x: model(x).sum())",
    ],
    "launch_your_own_kernels": ["", "", ""],
    "measure": [_LINEAR + "; fast = hostjit.compile(model)"],
    "port_from_nvfuser": ["", "assert total.shape == (8,)"],
    "record_and_replay": [
        _LINEAR
        + """
import torch.nn.functional as F
optimizer = torch.optim.AdamW(model.parameters())
data = [(torch.randn(2, 16), torch.randn(2, 4)) for _ in range(3)]
""",
        "",
        "",
        """
assert agents[0].act.captured is None and agents[1].act.captured is not None
for _ in range(3):
    improve(torch.randn(4), torch.randn(4))
assert len(improve.specializations) == 1
""",
        """
tracker = Filter()
for scale in (1, 1, 9, 0.1, 9, 0.1):
    tracker.update(scale * torch.randn(2))
assert tracker.update.captured.reads == 0
""",
        """
for number in (5, 5, 1, 0.1, 0.001):
    target = torch.randn(4)
    refine(target.diff(prepend=torch.zeros(1)) + number, target)
assert len(refine.specializations) == 1
cache, token = torch.randn(1, 512), torch.randn(1)
def model(token, keys):
    return torch.tanh(token + keys.mean(dim=1))
""",
        """
assert len(decode.specializations) == 1
x, weight, rows = torch.randn(2, 8), torch.randn(8, 8), torch.randn(64, 2, 8)
""",
        "assert len(settle.specializations) == len(encode.specializations) == 1",
    ],
    "run_a_control_loop": [
        _LINEAR
        + """
observations = iter(torch.randn(3, 1, 16))
actions = []
def running():
    return len(actions) < 3
def observe():
    return next(observations)
def act(action):
    actions.append(action)
""",
        """
assert actions[0] is actions[1] is actions[2]
recorded_observations, policy = torch.randn(8, 1, 16), hostjit.compile(model)
""",
        "assert known == 1",
        """
import numpy
for _ in range(3):
    assert type(act(numpy.ones(16))) is numpy.ndarray
assert "program @" in act.owner._arrays._whole.host_ir()
random, epsilon, actions = numpy.random.default_rng(0), 0.5, 4
mean, deviation = numpy.zeros(16), numpy.ones(16)
""",
        """
for _ in range(30):
    assert act(numpy.ones(16)) in range(4)
((_, compiled),) = act.owner._arrays._as_python._compiled
assert "program @" in compiled.host_ir()
""",
        """
class Made(Layer):
    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)
with torch.no_grad():
    nn.Sequential(*(Made() for _ in range(6)))(torch.randn(2, 4))
    for _ in range(6):
        evaluate(nn.Linear(4, 4), torch.randn(2, 4))
assert len(Layer.forward.specializations) == len(evaluate.specializations) == 3
""",
        """
root = torch.randn(8, 8)
matrix = root @ root.T + torch.eye(8)
for _ in range(8):
    side = torch.randn(8)
    torch.testing.assert_close(matrix @ solve(matrix, side), side, rtol=1e-3, atol=1e-3)
""",
        """
recurrent = hostjit.compile(Recurrent())
with torch.no_grad():
    for _ in range(3):
        recurrent(torch.randn(1, 16))
assert len(recurrent.specializations) == 1
""",
    ],
    "run_models_of_transformers": [
        """
import hostjit, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
def make():
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=128, eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()
model = make()
input_ids = torch.randint(0, 32, (1, 4))
""",
        "assert logits.shape == (1, 4, 32); model = make()",
    ],
    "save_and_load": [
        "",
        "",
        "",
        """
with torch.no_grad():
    assert torch.equal(fast(x), y)
import torch.nn.functional as F
optimizer = torch.optim.AdamW(model.parameters())
batches = [(torch.randn(4, 32), torch.randn(4, 8)) for _ in range(3)]
def plain_step(x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()
step = hostjit.capture(plain_step)
for x, y in batches:
    step(x, y)
path = "training.hostjit"
hostjit.save(step, path)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
""",
        "loaded = hostjit.load(path)",
        "",
    ],
    "train": ["", "", ""],
    "use_inductors_kernels": [_LINEAR],
    "use_torch_compile": [_LINEAR, "torch.testing.assert_close(fast(x), model(x))"],
}
