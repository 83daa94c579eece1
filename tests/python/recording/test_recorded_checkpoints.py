# SPDX-License-Identifier: Apache-2.0
"""Gradient checkpoints, and states of random numbers that the code reads and sets."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_beside_eager import check
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import hostjit

randn = torch.randn


def _keeps_products(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    is_product = operator is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE


_KINDS: dict[str, dict[str, Any]] = {
    "reentrant": {"use_reentrant": True},
    "not reentrant": {"use_reentrant": False},
    "without states": {"use_reentrant": False, "preserve_rng_state": False},
    "reentrant without states": {"use_reentrant": True, "preserve_rng_state": False},
    "without stopping early": {"use_reentrant": False, "early_stop": False},
    "selective": {
        "use_reentrant": False,
        "context_fn": functools.partial(create_selective_checkpoint_contexts, _keeps_products),
    },
}


class _Trainer:
    """A model of two blocks, of which each is a checkpoint."""

    def __init__(self, **kind: Any) -> None:
        torch.manual_seed(0)
        layers = [nn.Linear(3, 6), nn.BatchNorm1d(6, affine=False), nn.Tanh(), nn.Dropout(0.3)]
        self.model = nn.Sequential(*layers, nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.kind = kind

    def step(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        self.optimizer.zero_grad()
        x = x.clone().requires_grad_()
        hidden = checkpoint(self.model[:4], x, **self.kind)
        result = checkpoint(self.model[4:], hidden, **self.kind)
        loss = result.square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), x.grad


def _train(fast: Any, recorded: _Trainer, eager: _Trainer, calls: int = 6) -> None:
    for number in range(calls):
        found = []
        for step in (fast, eager.step):
            torch.manual_seed(number)
            found.append((step(randn(5, 3)), torch.get_rng_state()))
        assert_close(*found)
        assert_close(recorded.model.state_dict(), eager.model.state_dict())


@pytest.mark.parametrize("kind", list(_KINDS))
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_training_steps_with_checkpoints(runtime: str, kind: str) -> None:
    recorded, eager = (_Trainer(**_KINDS[kind]) for _ in range(2))
    fast = hostjit.capture(recorded.step, runtime=runtime, warmup=2)
    _train(fast, recorded, eager)
    assert len(fast.specializations) == 1
    assert fast.captured is not None


@pytest.mark.filterwarnings("ignore:hostjit")
def test_checkpoints_of_compiled_functions_that_run_in_parts() -> None:
    recorded, eager = (_Trainer(use_reentrant=False) for _ in range(2))
    _train(hostjit.compile(recorded.step), recorded, eager)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_in_checkpoints_and_in_sequence(use_reentrant: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.4), nn.Linear(4, 4), nn.Dropout(0.4))
    again = functools.partial(checkpoint, use_reentrant=use_reentrant)

    def inner(x: Tensor) -> Tensor:
        x = model[0](x)
        # The forward of a reentrant checkpoint computes no gradients, of which one in it warns.
        x = model[1:3](x) if use_reentrant else again(model[1:3], x)
        return x * torch.rand(4)

    def call(x: Tensor) -> tuple[Tensor, ...]:
        x = x.clone().requires_grad_()
        y = checkpoint_sequential(model, 2, x, use_reentrant=use_reentrant)
        (again(inner, x).sum() + y.square().sum()).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        for parameter in model.parameters():
            parameter.grad = None
        return y.detach(), x.grad, *gradients

    check(call, [(randn(5, 3),) for _ in range(4)])


def test_gradients_flow_through_a_checkpoint_that_is_replayed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 2))
    twin = copy.deepcopy(model)
    fast = hostjit.capture(lambda x: checkpoint(model, x, use_reentrant=False))
    for number in range(5):
        x = randn(4, 3, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        for run, given in ((fast, x), (twin, y)):
            torch.manual_seed(number)
            run(given).square().sum().backward()
        assert_close(x.grad, y.grad)
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            assert_close(a.grad, b.grad)
    # Before, a function with a backward of its own saves what a checkpoint is given.
    assert (fast.captured is not None) == (torch.__version__ >= (2, 12))


def forked(x: Tensor) -> Tensor:
    with torch.random.fork_rng():
        noise = torch.rand(4)
    return x + noise * torch.rand(4)


def drawn_again(x: Tensor) -> tuple[Tensor, ...]:
    state = torch.get_rng_state()
    first = x.softmax(0).multinomial(3)
    torch.set_rng_state(state)
    torch.nn.functional.dropout(x, 0.5)
    torch.set_rng_state(state.clone())
    return first, x.softmax(0).multinomial(3), torch.rand(4)


def returned(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x + torch.rand(4)
    return x, torch.get_rng_state()


def compared(x: Tensor) -> Tensor:
    state = torch.get_rng_state()
    x = x + torch.rand(4)
    return x * 2 if torch.equal(state, torch.get_rng_state()) else x * 3


@pytest.mark.parametrize("function", [forked, drawn_again, returned, compared])
def test_states_of_random_numbers(function: Callable[..., Any]) -> None:
    check(function, [(randn(4),) for _ in range(5)])
    check(function, [(randn(4),) for _ in range(5)], prune=True)


def test_states_that_are_given() -> None:
    kept = torch.get_rng_state()

    def call(x: Tensor, state: Tensor) -> Tensor:
        torch.set_rng_state(state)
        x = x * torch.rand(4)
        torch.set_rng_state(kept)
        return x + torch.rand(4)

    calls = [(randn(4), torch.Generator().manual_seed(seed).get_state()) for seed in range(5)]
    check(call, calls)


def test_numbers_that_are_read_behind_a_state_that_is_set() -> None:
    def call(x: Tensor) -> Tensor:
        state = torch.get_rng_state()
        is_large = torch.rand(()) > 0.5
        torch.set_rng_state(state)
        return x + torch.rand(4) if is_large else x - torch.rand(4)

    check(call, [(randn(4),) for _ in range(5)], recordings=2)


def test_states_that_a_replay_would_not_set_run_eagerly() -> None:
    kept: list[Tensor] = []

    def keeps(x: Tensor) -> Tensor:
        kept[:] = [torch.get_rng_state()]
        return x + torch.rand(4)

    def fails(x: Tensor) -> Tensor:
        try:
            torch.set_rng_state(torch.zeros(3, dtype=torch.uint8))
        except RuntimeError:
            return x + torch.rand(4)
        return x

    for function in (keeps, fails):
        check(function, [(randn(4),) for _ in range(4)], recordings=None)


def test_a_saved_recording_sets_states(tmp_path: Path) -> None:
    path = tmp_path / "drawn.hostjit"
    fast = hostjit.capture(drawn_again)
    for _ in range(3):
        fast(torch.zeros(4))
    hostjit.save(fast, path)
    loaded = hostjit.load(path)
    for seed in range(3):
        x = randn(4)
        found = []
        for run in (loaded, drawn_again):
            torch.manual_seed(seed)
            found.append((run(x), torch.get_rng_state()))
        assert_close(*found)


def test_a_checkpoint_that_is_read_in_its_backward_pass() -> None:
    weight = nn.Parameter(torch.ones(3))

    def block(x: Tensor) -> Tensor:
        y = (x * weight).exp()
        return y * 2 if y.sum() > 6 else y.square()

    def call(x: Tensor) -> Tensor:
        weight.grad = None
        checkpoint(block, x, use_reentrant=False).sum().backward()
        assert weight.grad is not None
        return weight.grad * 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(call, [(randn(3),) for _ in range(6)], recordings=2)
