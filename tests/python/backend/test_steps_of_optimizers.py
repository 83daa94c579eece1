# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers in functions of `torch.compile`: programs of their own, for any rate."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.testing import assert_close

from hostjit.compiling.specializer import Specializer

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda p: SGD(p, 0.1),
    "momentum": lambda p: SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: Adam(p, 1e-2),
    "adamw": lambda p: AdamW(p, 1e-2, amsgrad=True),
    "foreach": lambda p: AdamW(p, 1e-2, foreach=True),
    "rmsprop": lambda p: RMSprop(p, 1e-2),
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)


class Trainer:
    def __init__(self, make: Callable[..., Optimizer], model: nn.Module) -> None:
        self.model = model
        self.optimizer = make(model.parameters())
        self.schedule = CosineAnnealingLR(self.optimizer, 30)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def models(dtype: torch.dtype = torch.float32) -> tuple[nn.Module, nn.Module]:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(dtype)
    return model, copy.deepcopy(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_one_program_for_all_rates(kind: str, dtype: torch.dtype) -> None:
    eager, trainer = (Trainer(OPTIMIZERS[kind], model) for model in models(dtype))
    fast = torch.compile(trainer.step, backend="hostjit")
    for index in range(12):
        if index == 5:
            programs = Specializer.num_programs
        x, y = torch.randn(3, 4, dtype=dtype), torch.randn(3, 2, dtype=dtype)
        assert_close(fast(x, y), eager.step(x, y))
        for each in (eager, trainer):
            each.schedule.step()
    assert Specializer.num_programs == programs
    assert vars(trainer.optimizer).keys() == vars(eager.optimizer).keys()
    for found, expected in zip(trainer.model.parameters(), eager.model.parameters(), strict=True):
        assert_close(found, expected)
    groups, expected_groups = trainer.optimizer.param_groups, eager.optimizer.param_groups
    assert [{**g, "params": 0} for g in groups] == [{**g, "params": 0} for g in expected_groups]
    state, expected_state = trainer.optimizer.state_dict(), eager.optimizer.state_dict()
    assert_close(state["state"], expected_state["state"])


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_rates_that_the_code_sets(runtime: str) -> None:
    eager, trainer = (Trainer(OPTIMIZERS["adamw"], model) for model in models())

    def train(each: Trainer, x: Tensor, y: Tensor) -> Any:
        for group in each.optimizer.param_groups:
            group["lr"] *= 0.9
        return each.step(x, y)

    fast = torch.compile(train, backend="hostjit", options={"runtime": runtime})
    for _ in range(6):
        x, y = torch.randn(3, 4), torch.randn(3, 2)
        assert_close(fast(trainer, x, y), train(eager, x, y))
    assert trainer.optimizer.param_groups[0]["lr"] == eager.optimizer.param_groups[0]["lr"]
    assert trainer.optimizer.param_groups[0]["capturable"] is False
    assert [*vars(trainer.optimizer._optimizer_step_pre_hooks)] == [f"hostjit_step_{runtime}"]


def test_closures_hooks_and_classes_of_users() -> None:
    class Halved(SGD):
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.grad.mul_(0.5)
            return super().step(closure)

    for make in (lambda p: Halved(p, 0.1), OPTIMIZERS["momentum"]):
        eager, trainer = (Trainer(make, model) for model in models())
        seen: list[Optimizer] = []
        for each in (eager, trainer):
            each.optimizer.register_step_pre_hook(lambda one, *_, seen=seen: seen.append(one))
        fast = torch.compile(trainer.step, backend="hostjit")
        for _ in range(5):
            x, y = torch.randn(3, 4), torch.randn(3, 2)
            assert_close(fast(x, y), eager.step(x, y))
        assert seen.count(trainer.optimizer) == seen.count(eager.optimizer) >= 5

    def with_closure(each: Trainer, x: Tensor) -> Any:
        each.optimizer.zero_grad()
        each.model(x).sum().backward()
        return each.optimizer.step(lambda: torch.tensor(3.0))

    eager, trainer = (Trainer(OPTIMIZERS["momentum"], model) for model in models())
    fast = torch.compile(with_closure, backend="hostjit")
    for _ in range(4):
        x = torch.randn(3, 4)
        assert_close(fast(trainer, x), with_closure(eager, x))


def test_an_optimizer_is_let_go() -> None:
    @torch.compile(backend="hostjit")
    def train(each: Trainer, x: Tensor, y: Tensor) -> Any:
        return each.step(x, y)

    for _ in range(2):
        trainer = Trainer(OPTIMIZERS["adam"], models()[0])
        for _ in range(4):
            train(trainer, torch.randn(3, 4), torch.randn(3, 2))
        found = weakref.ref(trainer.optimizer)
        del trainer
        gc.collect()
        assert found() is None
