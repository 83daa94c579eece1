# SPDX-License-Identifier: Apache-2.0
"""Compiled steps of optimizers beside eager ones: numbers, schedules, state, what runs eagerly."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from same_state import check_same_state
from torch import nn
from torch.optim import (
    ASGD,
    SGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    Rprop,
)

import hostjit

Make = Callable[[list[nn.Parameter]], Optimizer]


class Trainer:
    """Two equal models: one whose optimizer's step is compiled, one beside it in eager mode."""

    def __init__(self, make: Callable[[nn.Module], Optimizer], runtime: str) -> None:
        self.models = [nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))]
        self.models.append(copy.deepcopy(self.models[0]))
        self.optimizers = [make(model) for model in self.models]
        self.step = hostjit.compile(self.optimizers[0].step, runtime=runtime)

    def train(self, steps: int = 5, set_to_none: bool = True) -> None:
        for _ in range(steps):
            x = torch.randn(3, 4)
            for model, optimizer, step in zip(
                self.models, self.optimizers, (self.step, self.optimizers[1].step), strict=True
            ):
                optimizer.zero_grad(set_to_none=set_to_none)
                model(x).square().sum().backward()
                assert step() is None
        self.check()

    def check(self) -> None:
        check_same_state(self.models, self.optimizers)


# What they do changes with the number of steps.
_LONGER: list[tuple[Any, dict[str, Any]]] = [
    (RAdam, {}),
    (RAdam, {"weight_decay": 0.1, "betas": (0.5, 0.7), "foreach": True}),
    (RAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    (RAdam, {"lr": torch.tensor(0.05), "foreach": False}),
    (ASGD, {}),
    (ASGD, {"lambd": 0.01, "alpha": 0.5, "t0": 3, "foreach": False}),
    (ASGD, {"lr": 0.005, "t0": 5.5, "weight_decay": 0.1, "maximize": True, "foreach": True}),
    (Rprop, {"foreach": False}),
    (Rprop, {"etas": (0.3, 1.3), "step_sizes": (1e-3, 0.06), "foreach": True}),
    (Rprop, {"maximize": True}),
]


def adamw(model: nn.Module) -> Optimizer:
    return AdamW(model.parameters(), lr=0.05)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (SGD, {}),
        (SGD, {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}),
        (SGD, {"lr": 0.001, "momentum": 0.9, "nesterov": True, "maximize": True}),
        (SGD, {"foreach": True, "weight_decay": 0.1}),
        (Adam, {}),
        (Adam, {"weight_decay": 0.1, "amsgrad": True, "foreach": True}),
        (Adam, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
        (Adam, {"betas": (0.3, 0.5)}),
        (AdamW, {}),
        (AdamW, {"amsgrad": True, "maximize": True, "foreach": False}),
        (AdamW, {"fused": True}),
        (AdamW, {"lr": torch.tensor(0.05)}),
        (RMSprop, {}),
        (RMSprop, {"momentum": 0.5, "centered": True, "weight_decay": 0.1, "eps": 1e-3}),
        (RMSprop, {"foreach": True, "maximize": True, "alpha": 0.5}),
        (Adagrad, {}),
        (Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1, "foreach": True}),
        (Adagrad, {"initial_accumulator_value": 0.3, "maximize": True}),
        (Adamax, {}),
        (Adamax, {"weight_decay": 0.1, "betas": (0.5, 0.7), "foreach": True}),
        (NAdam, {}),
        (NAdam, {"weight_decay": 0.1, "momentum_decay": 0.1, "maximize": True}),
        (NAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True, "foreach": True}),
        (Adadelta, {}),
        (Adadelta, {"rho": 0.5, "weight_decay": 0.1, "eps": 1e-3, "foreach": True}),
        (Adadelta, {"lr": 0.5, "maximize": True, "foreach": False}),
        *_LONGER,
    ],
)
def test_steps(kind: Any, arguments: dict[str, Any], runtime: str) -> None:
    arguments = {"lr": 0.05, **arguments}
    trainer = Trainer(lambda model: kind(model.parameters(), **arguments), runtime)
    trainer.train()
    assert len(trainer.step.specializations) == 1
    assert trainer.step.specializations[0].program is not None
    trainer.train(set_to_none=False)
    assert len(trainer.step.specializations) == 1


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="an older version of torch")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"nesterov": False, "momentum": 0.3, "weight_decay": 0.0},
        {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3, "eps": 1e-3},
        {"lr": torch.tensor(0.02), "ns_coefficients": (3.0, -4.0, 2.0)},
    ],
)
def test_steps_of_muon(arguments: dict[str, Any], dtype: torch.dtype, runtime: str) -> None:
    """Updates are computed in bfloat16: they agree with eager's to its last bits."""
    arguments = {"lr": 0.02, **arguments}
    sizes = ((16, 32), (32, 16), (8, 8))
    weights = [[nn.Parameter(torch.randn(*size).to(dtype)) for size in sizes] for _ in range(2)]
    for compiled, eager in zip(*weights, strict=True):
        compiled.data.copy_(eager.data)
    optimizers = [torch.optim.Muon(parameters, **arguments) for parameters in weights]
    step = hostjit.compile(optimizers[0].step, runtime=runtime)
    for _ in range(6):
        for pair in zip(*weights, strict=True):
            gradient = torch.randn(*pair[0].shape).to(dtype)
            for parameter in pair:
                parameter.grad = gradient.clone()
        before = [parameter.detach().clone() for parameter in weights[1]]
        step()
        optimizers[1].step()
        for compiled, eager, old in zip(*weights, before, strict=True):
            largest = (eager - old).abs().max().item()
            bits = 2**-7 * eager.abs().max().item() if dtype is torch.bfloat16 else 0
            torch.testing.assert_close(compiled, eager, rtol=0, atol=0.02 * largest + bits)
            compiled.data.copy_(eager.data)
        for optimizer in optimizers:
            optimizer.param_groups[0]["momentum"] *= 0.99
    assert len(step.specializations) == 1


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="an older version of torch")
@pytest.mark.parametrize("how", ["copied", "loaded", "ratio"])
def test_groups_of_muon_that_others_made(how: str, runtime: str) -> None:
    """PyTorch adds a default where an optimizer is copied or loaded, which no group has."""
    parameters = [nn.Parameter(torch.randn(8, 2)) for _ in range(2)]
    parameters[0].data.copy_(parameters[1].data)
    optimizers: list[Any] = [torch.optim.Muon([parameter], lr=0.1) for parameter in parameters]
    for number, optimizer in enumerate(optimizers):
        if how == "copied":
            optimizers[number] = copy.deepcopy(optimizer)
            parameters[number] = optimizers[number].param_groups[0]["params"][0]
        elif how == "loaded":
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        else:
            optimizer.param_groups[0]["adjust_lr_fn"] = "none"
    step = hostjit.compile(optimizers[0].step, runtime=runtime)
    for _ in range(4):
        gradient = torch.randn(8, 2)
        for parameter in parameters:
            parameter.grad = gradient.clone()
        step()
        optimizers[1].step()
        torch.testing.assert_close(*parameters, rtol=0, atol=2e-3)
        parameters[0].data.copy_(parameters[1].data)


class _WithDefaults(Adam):
    """Has other defaults, and what a user adds; a step is Adam's."""

    def __init__(self, params: Any, lr: float = 0.03, label: str = "") -> None:
        super().__init__(params, lr=lr, betas=(0.8, 0.9), weight_decay=0.1)
        self.label = label

    def described(self) -> str:
        return f"{self.label}: {self.defaults['lr']}"


class _Shrinking(Adam):
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(0.5)


class _StartingOtherwise(Adam):
    def _init_group(self, *arguments: Any) -> Any:
        result = super()._init_group(*arguments)  # type: ignore[no-untyped-call]
        for state in self.state.values():
            state["exp_avg"].mul_(0.5)
        return result


def test_derived_classes_that_step_as_pytorchs_do(runtime: str) -> None:
    trainer = Trainer(lambda model: _WithDefaults(model.parameters()), runtime)
    trainer.train()
    assert len(trainer.step.specializations) == 1


class _StartingByItself(Adam):
    def __init__(self, params: Any) -> None:
        super().__init__(params, lr=0.05)
        self._start = super()._init_group
        self._init_group = self._half

    def _half(self, *arguments: Any) -> Any:
        result = self._start(*arguments)
        for state in self.state.values():
            state["exp_avg"].mul_(0.5)
        return result


@pytest.mark.filterwarnings("ignore:hostjit")
def test_an_object_with_a_method_of_its_own_steps_eagerly(runtime: str) -> None:
    Trainer(lambda model: _StartingByItself(model.parameters()), runtime).train()


@pytest.mark.parametrize("kind", [_Shrinking, _StartingOtherwise])
def test_derived_classes_that_step_otherwise(kind: Any, runtime: str) -> None:
    trainer = Trainer(lambda model: kind(model.parameters()), runtime)
    with pytest.warns(UserWarning, match=f"there are no steps of {kind.__qualname__} to compile"):
        trainer.train()


@pytest.mark.parametrize(("kind", "arguments"), _LONGER)
def test_twenty_steps_with_state_that_is_loaded(
    kind: Any, arguments: dict[str, Any], runtime: str
) -> None:
    arguments = {"lr": 0.05, **arguments}
    trainer = Trainer(lambda model: kind(model.parameters(), **arguments), runtime)
    trainer.train(10)
    states = [optimizer.state_dict() for optimizer in trainer.optimizers]
    for optimizer, state in zip(trainer.optimizers, reversed(states), strict=True):
        optimizer.load_state_dict(copy.deepcopy(state))
    trainer.check()
    trainer.train(10)


@pytest.mark.parametrize("form", ["single", "foreach", "fused"])
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (SGD, {}),
        (SGD, {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}),
        (SGD, {"momentum": 0.9, "nesterov": True, "maximize": True}),
        (Adam, {"weight_decay": 0.1, "amsgrad": True}),
        (AdamW, {"weight_decay": 0.1}),
    ],
)
def test_half_precision_is_as_exact_as_eager(
    kind: Any, arguments: dict[str, Any], form: str, runtime: str
) -> None:
    _check_half_precision(kind, arguments, form, runtime)


@pytest.mark.parametrize("form", ["single", "foreach"])
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (RMSprop, {"momentum": 0.5, "centered": True, "weight_decay": 0.1, "eps": 1e-3}),
        (Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1}),
        (Adamax, {"weight_decay": 0.1}),
        (NAdam, {"weight_decay": 0.1}),
        (RAdam, {"weight_decay": 0.1}),
        (ASGD, {"weight_decay": 0.1, "t0": 2, "lambd": 0.01}),
        (Adadelta, {"weight_decay": 0.1}),
    ],
)
def test_half_precision_where_there_is_no_fused_form(
    kind: Any, arguments: dict[str, Any], form: str, runtime: str
) -> None:
    _check_half_precision(kind, arguments, form, runtime)


def _check_half_precision(kind: Any, arguments: dict[str, Any], form: str, runtime: str) -> None:
    weights = torch.randn(1000).bfloat16()
    parameters = [nn.Parameter(weights.clone()) for _ in range(2)]
    parameters.append(nn.Parameter(weights.double()))
    forms = {} if form == "single" else {form: True}
    optimizers = [kind([parameter], lr=0.01, **arguments, **forms) for parameter in parameters]
    steps = [hostjit.compile(optimizers[0].step, runtime=runtime)]
    steps += [optimizer.step for optimizer in optimizers[1:]]
    for _ in range(4):
        grad = torch.randn(1000).bfloat16()
        for parameter, step in zip(parameters, steps, strict=True):
            parameter.grad = grad.to(parameter.dtype)
            step()
    found, eager, exact = (
        [parameter.detach(), *filter(torch.is_tensor, optimizer.state[parameter].values())]
        for parameter, optimizer in zip(parameters, optimizers, strict=True)
    )
    for ours, theirs, expected in zip(found, eager, exact, strict=True):
        # Numbers that eager's forms compute in float32 are rounded in another way.
        allowed = (theirs - expected).abs().mean() * 1.02 + 1e-8
        assert (ours - expected).abs().mean() <= allowed


@pytest.mark.parametrize("schedule", ["lr", "one cycle", "tensor"])
def test_schedules_do_not_compile_anew(schedule: str, runtime: str) -> None:
    def make(model: nn.Module) -> Optimizer:
        lr = torch.tensor(0.05) if schedule == "tensor" else 0.05
        return AdamW(model.parameters(), lr=lr)

    trainer = Trainer(make, runtime)
    trainer.train(1)
    schedulers: list[Any] = [
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)
        if schedule == "one cycle"
        else torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        for optimizer in trainer.optimizers
    ]
    for _ in range(6):
        trainer.train(2)
        for scheduler in schedulers:
            scheduler.step()
    assert len(trainer.step.specializations) == 1


FACTORS: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "SGD": (SGD, {"momentum": 0.9, "weight_decay": 0.1}, ("momentum", "weight_decay")),
    "SGD, Nesterov": (SGD, {"momentum": 0.9, "nesterov": True}, ("momentum",)),
    "SGD without momentum": (SGD, {"weight_decay": 0.1}, ("weight_decay",)),
    "Adam": (Adam, {"weight_decay": 0.1}, ("weight_decay",)),
    "AdamW": (AdamW, {"weight_decay": 0.1}, ("weight_decay",)),
    "RMSprop": (RMSprop, {"momentum": 0.5, "weight_decay": 0.1}, ("momentum", "weight_decay")),
    "NAdam": (NAdam, {"weight_decay": 0.1, "decoupled_weight_decay": True}, ("weight_decay",)),
}


@pytest.mark.parametrize("name", FACTORS)
def test_schedules_of_momentum_and_decay(name: str, runtime: str) -> None:
    kind, given, names = FACTORS[name]
    trainer = Trainer(lambda model: kind(model.parameters(), lr=0.01, **given), runtime)

    def train(values: Iterable[float]) -> None:
        for value in values:
            for optimizer in trainer.optimizers:
                for group in optimizer.param_groups:
                    group.update(dict.fromkeys(names, value))
            trainer.train(1)

    train(0.1 + 0.05 * number for number in range(12))
    assert len(trainer.step.specializations) <= 2
    if name != "RMSprop":  # whose state eager makes for a momentum
        train((0.0, 0.3, 0.0, 0.2))
    for optimizer in trainer.optimizers:
        optimizer.load_state_dict(optimizer.state_dict())
    train(0.7 - 0.05 * number for number in range(8))


def test_momentum_of_one_cycle(runtime: str) -> None:
    trainer = Trainer(lambda model: SGD(model.parameters(), lr=0.1, momentum=0.9), runtime)
    trainer.train(1)
    schedulers = [
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=30)
        for optimizer in trainer.optimizers
    ]
    for _ in range(12):
        trainer.train(1)
        for scheduler in schedulers:
            scheduler.step()
    assert len(trainer.step.specializations) <= 2


def test_groups_and_parameters_without_gradients(runtime: str) -> None:
    def make(model: Any) -> Optimizer:
        return AdamW(
            [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters()}]
        )

    trainer = Trainer(make, runtime)
    trainer.train(3)
    for frozen in (True, False):
        for model in trainer.models:
            model[0].weight.requires_grad_(not frozen)
        trainer.train(3)
    for optimizer in trainer.optimizers:
        optimizer.param_groups[1]["weight_decay"] = 0.3
    trainer.train(3)
    extra = [nn.Parameter(torch.ones(2)) for _ in trainer.models]
    for optimizer, parameter in zip(trainer.optimizers, extra, strict=True):
        optimizer.add_param_group({"params": [parameter]})
        parameter.grad = torch.ones(2)
    trainer.train(3)
    for parameter in extra:
        parameter.grad = torch.ones(2)
    for step in (trainer.step, trainer.optimizers[1].step):
        step()
    torch.testing.assert_close(*extra)


def test_a_parameter_that_gets_its_first_gradient(runtime: str) -> None:
    parameters = [[nn.Parameter(torch.ones(2)) for _ in range(2)] for _ in range(2)]
    optimizers = [Adam(pair, lr=0.1) for pair in parameters]
    steps = [hostjit.compile(optimizers[0].step, runtime=runtime), optimizers[1].step]
    for number in range(6):
        for pair, step in zip(parameters, steps, strict=True):
            pair[0].grad = torch.ones(2)
            if number > 2:
                pair[1].grad = torch.ones(2)
            step()
    torch.testing.assert_close(*parameters)


def test_state_that_is_loaded(runtime: str) -> None:
    trainer = Trainer(adamw, runtime)
    trainer.train(3)
    saved = io.BytesIO()
    torch.save(trainer.optimizers[0].state_dict(), saved)
    trainer.train(3)
    for optimizer in trainer.optimizers:
        saved.seek(0)
        optimizer.load_state_dict(torch.load(saved))
    trainer.train(3)
    for model in trainer.models:
        model[0].weight.data = model[0].weight.data.clone()
    trainer.train(3)
    assert len(trainer.step.specializations) == 1


def test_steps_count_as_writes(runtime: str) -> None:
    trainer = Trainer(adamw, runtime)
    trainer.train(2)
    y = trainer.models[0](torch.randn(3, 4)).square().sum()
    y.backward(retain_graph=True)
    trainer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_what_runs_eagerly(runtime: str) -> None:
    trainer = Trainer(lambda model: Adafactor(model.parameters()), runtime)
    with pytest.warns(UserWarning, match="there are no steps of Adafactor to compile"):
        trainer.train()
    trainer = Trainer(adamw, runtime)
    trainer.train(2)
    assert trainer.step(lambda: 3.0) == 3.0
    called: list[Any] = []
    trainer.optimizers[0].register_step_pre_hook(lambda *arguments: called.append(arguments))
    with pytest.warns(UserWarning, match="runs eagerly: the optimizer has hooks"):
        trainer.step()
    assert len(called) == 1


def test_gradients_that_share_memory_with_parameters(runtime: str) -> None:
    pairs = [[nn.Parameter(torch.ones(2)) for _ in range(6)] for _ in range(2)]
    optimizers = [SGD(pair, lr=0.5) for pair in pairs]
    steps = [hostjit.compile(optimizers[0].step, runtime=runtime), optimizers[1].step]
    for shares in (False, True):
        for pair, step in zip(pairs, steps, strict=True):
            for index, parameter in enumerate(pair):
                other = pair[index - 1].detach() if shares else torch.ones(2)
                parameter.grad = other
            step()
    torch.testing.assert_close(*pairs)
