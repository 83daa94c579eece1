# SPDX-License-Identifier: Apache-2.0
"""Files of training steps, on the tensors of the file and on objects that are given."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from no_warnings import no_warnings
from torch import Tensor, nn
from torch.nn import functional

import hostjit


@pytest.fixture(autouse=True)
def with_gradients() -> Iterator[None]:
    with torch.enable_grad():
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "step.hostjit"


class Training:
    """A model, its optimizer and a step, made the same each time."""

    def __init__(self, kind: Any = torch.optim.AdamW, seed: int = 0, **options: Any) -> None:
        torch.manual_seed(seed)
        self.model = model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
        self.optimizer = optimizer = kind(model.parameters(), **{"lr": 0.05, **options})

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        self.step: Callable[..., Tensor] = step

    def copied(self) -> Training:
        """Return another one in the same state."""
        kind = type(self.optimizer)
        other = Training(kind)
        other.model.load_state_dict(self.model.state_dict())
        other.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        for mine, its in zip(self.model.parameters(), other.model.parameters(), strict=True):
            its.grad = None if mine.grad is None else mine.grad.clone()
        return other

    def check_like(self, other: Training) -> None:
        torch.testing.assert_close(self.model.state_dict(), other.model.state_dict())
        mine, its = self.optimizer.state_dict(), other.optimizer.state_dict()
        torch.testing.assert_close(mine["state"], its["state"])


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(3, 4), torch.randn(3, 2)


def recorded(training: Training) -> Any:
    captured = hostjit.capture(training.step, fallback=False)
    for _ in range(3):
        captured(*batch())
    return captured


KINDS = [
    (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.AdamW, {}),
]


@pytest.mark.parametrize(("kind", "options"), KINDS)
@pytest.mark.parametrize("constants", [True, False])
def test_a_step_on_objects_of_the_process(
    kind: Any, options: dict[str, Any], constants: bool, path: Path
) -> None:
    hostjit.save(recorded(Training(kind, **options)), path, constants=constants)
    mine = Training(kind, seed=1, **options)
    mine.step(*batch())
    eager = mine.copied()
    parameters = {"model": mine.model, "optimizer": mine.optimizer}
    loaded = hostjit.load(path, parameters=parameters)
    assert loaded.numbers == {}
    assert loaded.parameters["model.0.weight"] is mine.model[0].weight
    for lr in (0.05, 0.01, 0.1):
        for each in (mine, eager):
            each.optimizer.param_groups[0]["lr"] = lr
        args = batch()
        torch.testing.assert_close(loaded(*args), eager.step(*args))
        mine.check_like(eager)
        torch.testing.assert_close(mine.model[0].weight.grad, eager.model[0].weight.grad)
    assert len(loaded.specializations) == 1
    hostjit.save(loaded, path)
    loaded = hostjit.load(path, parameters=parameters, recompile=True)
    args = batch()
    torch.testing.assert_close(loaded(*args), eager.step(*args))
    mine.check_like(eager)


def test_what_is_not_given_is_the_file_s(path: Path) -> None:
    training = Training()
    hostjit.save(recorded(training), path)
    mine = training.copied()
    before = copy.deepcopy(mine.optimizer.state_dict()["state"])
    loaded = hostjit.load(path, parameters={"model": mine.model})
    args = batch()
    torch.testing.assert_close(loaded(*args), training.step(*args))
    torch.testing.assert_close(mine.model.state_dict(), training.model.state_dict())
    torch.testing.assert_close(mine.optimizer.state_dict()["state"], before)
    state = loaded.parameters["optimizer.state[0]['exp_avg']"]
    torch.testing.assert_close(state, training.optimizer.state[training.model[0].weight]["exp_avg"])


def test_optimizers_that_nothing_names(path: Path) -> None:
    class Hidden:
        __slots__ = ("optimizer",)

    model, hidden = nn.Linear(3, 1), Hidden()
    hidden.optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(x: Tensor) -> None:
        hidden.optimizer.zero_grad()
        model(x).square().sum().backward()
        hidden.optimizer.step()

    captured = hostjit.capture(step, fallback=False)
    x = torch.randn(2, 3)
    for _ in range(3):
        captured(x)
    hostjit.save(captured, path)
    loaded = hostjit.load(path)
    assert loaded.numbers == {"lr": 0.1, "betas": (0.9, 0.999)}
    hidden.optimizer.param_groups[0]["lr"] = loaded.numbers["lr"] = 0.5
    for _ in range(2):
        captured(x)
        loaded(x)
        torch.testing.assert_close(loaded.parameters["model.weight"], model.weight, rtol=0, atol=0)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_a_step_on_tensors_of_the_file(kind: Any, options: dict[str, Any], path: Path) -> None:
    training = Training(kind, **options)
    captured = recorded(training)
    hostjit.save(captured, path)
    loaded = hostjit.load(path)
    name = "optimizer.param_groups[0]['lr']"
    assert loaded.numbers[name] == 0.05
    weight = loaded.parameters["model.0.weight"]
    torch.testing.assert_close(weight.grad, training.model[0].weight.grad)
    for lr in (0.05, 0.02):
        training.optimizer.param_groups[0]["lr"] = loaded.numbers[name] = lr
        args = batch()
        torch.testing.assert_close(loaded(*args), captured(*args), rtol=0, atol=0)
        torch.testing.assert_close(weight, training.model[0].weight, rtol=0, atol=0)
    hostjit.save(loaded, path)  # as it is now
    again = hostjit.load(path)
    assert again.numbers[name] == 0.02
    args = batch()
    torch.testing.assert_close(again(*args), captured(*args), rtol=0, atol=0)


def test_a_checkpoint(path: Path) -> None:
    hostjit.save(recorded(Training()), path)
    mine = Training(seed=1)
    mine.step(*batch())
    eager = mine.copied()
    checkpoint = {"model": mine.model.state_dict(), "optimizer": mine.optimizer.state_dict()}
    loaded = hostjit.load(path, parameters=checkpoint)
    for name, parameter in eager.model.named_parameters():
        loaded.parameters[f"model.{name}"].grad = parameter.grad.clone()
    args = batch()
    torch.testing.assert_close(loaded(*args), eager.step(*args))
    torch.testing.assert_close(mine.model.state_dict(), eager.model.state_dict())


def test_a_schedule(path: Path) -> None:
    hostjit.save(recorded(Training()), path)
    mine = Training(seed=1)
    mine.step(*batch())
    eager = mine.copied()
    schedules = [torch.optim.lr_scheduler.StepLR(each.optimizer, 1, 0.5) for each in (mine, eager)]
    loaded = hostjit.load(path, target=mine.step)
    with no_warnings():
        for _ in range(3):
            args = batch()
            torch.testing.assert_close(loaded(*args), eager.step(*args))
            for schedule in schedules:
                schedule.step()
    mine.check_like(eager)
    assert len(loaded.specializations) == 1


def test_an_optimizer_has_to_be_as_it_was(path: Path) -> None:
    hostjit.save(recorded(Training()), path)

    def load(training: Training) -> Any:
        parameters = {"model": training.model, "optimizer": training.optimizer}
        return hostjit.load(path, parameters=parameters)

    def refused(training: Training, text: str, *, steps: int = 1) -> None:
        for _ in range(steps):
            training.step(*batch())
        with pytest.raises(hostjit.Error, match=text):
            load(training)

    refused(Training(), r"has no 'optimizer\.state\[0\]\['step'\]' yet.*make a step", steps=0)
    refused(Training(torch.optim.SGD), "is a SGD, the saved one is 'torch.optim.adamw:AdamW'")
    refused(
        Training(weight_decay=0.5),
        "optimizer 'optimizer': 'weight_decay' of group 0 is 0.5, the saved one 0.01",
    )
    more = Training()
    more.optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
    refused(more, "it has 2 parameter groups, the saved one 1")
    hooked = Training()
    hooked.optimizer.register_step_pre_hook(lambda *_: None)
    refused(hooked, "the optimizer has hooks")
    tensor = Training(lr=torch.tensor(0.1))
    refused(tensor, "has no .*'lr'.*, or another kind of it")
    other = Training(seed=2)
    other.model = Training().model  # the optimizer is another model's
    refused(other, "are one tensor of the saved program, and two of those that are given")


def test_an_optimizer_that_changes_is_noticed(path: Path) -> None:
    hostjit.save(recorded(Training()), path)
    mine = Training(seed=1)
    mine.step(*batch())
    group = mine.optimizer.param_groups[0]
    loaded = hostjit.load(path, parameters={"model": mine.model, "optimizer": mine.optimizer})
    loaded(*batch())

    def refused(text: str) -> None:
        with pytest.raises(hostjit.MismatchError, match=text):
            loaded(*batch())

    changed = r"\(but the optimizer, its parameters or what was constant of it changed\)"
    group["weight_decay"] = 0.5
    refused(changed)
    group["weight_decay"] = 0.01
    loaded(*batch())
    state = mine.optimizer.state.pop(mine.model[0].bias)
    refused(changed)
    mine.optimizer.state[mine.model[0].bias] = state
    group["params"].reverse()
    refused(changed)
    group["params"].reverse()
    mine.optimizer.zero_grad()
    refused(r"\(but 'model\.\d\.\w+' has no gradient\)")
    mine.step(*batch())
    eager = mine.copied()
    args = batch()
    torch.testing.assert_close(loaded(*args), eager.step(*args))
    mine.check_like(eager)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_the_step_of_an_optimizer_alone(kind: Any, options: dict[str, Any], path: Path) -> None:
    training = Training(kind, **options)
    frozen = training.model[2].bias
    frozen.requires_grad_(False)
    training.step(*batch())
    step = hostjit.compile(training.optimizer.step, fallback=False)
    step()
    hostjit.save(step, path)
    mine = training.copied()
    mine.model[2].bias.requires_grad_(False)
    eager = mine.copied()
    loads: list[Callable[[], Any]] = [
        lambda: hostjit.load(path, parameters=mine.optimizer),
        lambda: hostjit.load(path, target=mine.optimizer.step),
    ]
    for load in loads:
        loaded = load()
        for _ in range(2):
            loaded()
            eager.optimizer.step()
            mine.check_like(eager)
    # A parameter that had no gradient gets one.
    loaded = hostjit.load(path, parameters=mine.optimizer)
    loaded()
    mine.model[2].bias.grad = torch.ones(2)
    name = r"param_groups\[0\]\['params'\]\[3\]"
    with pytest.raises(hostjit.Error, match=rf"\(but '{name}' has a gradient\)"):
        loaded()
    with pytest.raises(hostjit.Error, match="has yet to make the state of a parameter"):
        hostjit.load(path, parameters=mine.optimizer)
    mine.model[2].bias.grad = None
    mine.model[2].bias.requires_grad_()
    with pytest.raises(hostjit.Error, match=f"'{name}' needs a gradient, which is not as it was"):
        hostjit.load(path, parameters=mine.optimizer)


def test_a_method_with_its_own_optimizer(path: Path) -> None:
    class Trainer:
        def __init__(self) -> None:
            torch.manual_seed(0)
            self.model = nn.Linear(3, 1)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

        @hostjit.capture
        def update(self, x: Tensor) -> Tensor:
            self.optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            return loss.detach()

    trainer = Trainer()
    x = torch.randn(2, 3)
    for _ in range(3):
        trainer.update(x)
    hostjit.save(trainer.update, path)
    other = Trainer()
    other.update(x)
    loaded = hostjit.load(path, target=other.update)
    assert loaded.parameters["model.weight"] is other.model.weight
    again = Trainer()
    expected = [again.update(x) for _ in range(3)][1:]
    torch.testing.assert_close([loaded(x) for _ in range(2)], expected)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("early", [True, False])
def test_hooks_of_given_tensors(path: Path, early: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)

    def gradients(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    captured = hostjit.capture(gradients)
    x = torch.randn(4, 3)
    for _ in range(3):
        captured(x)
    hostjit.save(captured, path)
    seen: list[Tensor] = []
    hooks = [model.weight.register_hook(seen.append)] if early else []
    alone = hostjit.load(path, parameters={"model": model})
    beside = hostjit.load(path, target=gradients)
    if not early:
        torch.testing.assert_close(alone(x), gradients(x))
        hooks.append(model.weight.register_hook(seen.append))
    with pytest.raises(hostjit.MismatchError, match="has hooks"):
        alone(x)
    beside(x)
    assert len(seen) == 1
    hooks[0].remove()
    torch.testing.assert_close(alone(x), gradients(x))
    with torch.autograd.detect_anomaly(check_nan=False), pytest.raises(hostjit.MismatchError):
        alone(x)
    torch.testing.assert_close(alone(x), gradients(x))
    assert len(seen) == 1


def test_graphs_of_given_tensors(path: Path) -> None:
    torch.manual_seed(0)

    def gradients(x: Tensor) -> Tensor:
        x.square().sum().backward()
        return x.detach() + 1

    captured = hostjit.capture(gradients)
    for _ in range(3):
        captured(torch.randn(4, requires_grad=True))
    hostjit.save(captured, path)
    loaded = hostjit.load(path)
    x = torch.randn(4, requires_grad=True)
    loaded(x)
    torch.testing.assert_close(x.grad, 2 * x.detach())
    with pytest.raises(hostjit.MismatchError, match="was computed with gradients"):
        loaded(x * 2)
