# SPDX-License-Identifier: Apache-2.0
"""Gradients, optimizer steps, statistics and random numbers of recordings are those of eager."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from no_warnings import no_warnings
from recorded_beside_eager import check
from torch import nn
from torch.testing import assert_close

import hostjit

randn = torch.randn


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 8),
        nn.BatchNorm1d(8, affine=False),
        nn.Tanh(),
        nn.Dropout(0.25),
        nn.Linear(8, 1),
    )


_OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01, t0=3, lambd=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.1),
}


class _Trainer:
    def __init__(self, optimizer: str) -> None:
        self.model = _model()
        # The bias in front of a batch norm has gradients that are nothing but rounding.
        self.parameters = [p for n, p in self.model.named_parameters() if n != "0.bias"]
        self.optimizer = _OPTIMIZERS[optimizer](self.parameters)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("name", list(_OPTIMIZERS))
def test_a_training_step_is_one_recording(name: str) -> None:
    eager, recorded = _Trainer(name), _Trainer(name)
    fast = hostjit.capture(recorded.step, warmup=2)
    for number in range(9):
        torch.manual_seed(number)
        x, y = randn(5, 4), randn(5, 1)
        expected = eager.step(x, y)
        torch.manual_seed(number)
        x, y = randn(5, 4), randn(5, 1)
        assert_close(fast(x, y), expected, rtol=1e-4, atol=1e-5)
        eager.schedule.step()
        recorded.schedule.step()
        for a, b in zip(recorded.parameters, eager.parameters, strict=True):
            assert_close(a, b, rtol=1e-3, atol=1e-5)
            assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5)
        for a, b in zip(recorded.model.buffers(), eager.model.buffers(), strict=True):
            assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert len(fast.specializations) == 1


def test_a_step_without_the_optimizer_or_with_clipping() -> None:
    eager, recorded = _Trainer("sgd"), _Trainer("sgd")

    def step(trainer: _Trainer, x: torch.Tensor) -> torch.Tensor:
        trainer.model.zero_grad()
        trainer.model(x).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(trainer.model.parameters(), 0.1)
        with torch.no_grad():
            for parameter in trainer.model.parameters():
                parameter -= 0.1 * parameter.grad
        return norm

    fast = hostjit.capture(lambda x: step(recorded, x))
    for number in range(6):
        x = randn(5, 4)
        torch.manual_seed(number)
        expected = step(eager, x)
        torch.manual_seed(number)
        assert_close(fast(x), expected)
        assert_close(recorded.model.state_dict(), eager.model.state_dict())
    assert len(fast.specializations) == 1


def test_a_step_that_is_replaced() -> None:
    models = [nn.Linear(3, 2) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]

    def training(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    steps = list(map(training, models, optimizers))
    steps[0] = hostjit.capture(steps[0])

    def train() -> None:
        for _ in range(3):
            x = torch.randn(4, 3)
            assert_close(steps[0](x), steps[1](x))
            assert_close(models[0].state_dict(), models[1].state_dict())

    train()
    for optimizer in optimizers:
        plain = optimizer.step

        def twice(plain: Callable[[], Any] = plain) -> None:
            plain()
            plain()

        optimizer.step = twice  # type: ignore[method-assign, assignment]
    train()
    for optimizer in optimizers:
        del optimizer.step
    train()


def test_a_call_that_replaces_the_step() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    weight.grad = torch.ones(3)

    def freezing(x: torch.Tensor) -> torch.Tensor:
        optimizer.step()
        optimizer.step = lambda: None  # type: ignore[method-assign, assignment]
        return x + weight

    fast = hostjit.capture(freezing, warmup=0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert_close(fast(torch.zeros(3)), torch.full((3,), 0.5))


def test_whether_there_is_a_gradient_is_checked() -> None:
    weight = nn.Parameter(torch.ones(3))
    fast = hostjit.capture(lambda x: (weight * x).sum().backward())
    expected = None
    for number in range(12):
        if number in (3, 4, 8):
            weight.grad = expected = None
        if number == 9:
            weight.grad.zero_()
            expected = torch.zeros(3)
        x = randn(3)
        fast(x)
        expected = x.clone() if expected is None else expected + x
        assert_close(weight.grad, expected)
    assert len(fast.specializations) == 2


def test_gradients_of_arguments() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        (x * x).sum().backward()
        return x.detach() * 2

    fast = hostjit.capture(call)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(6):
            x = randn(3, requires_grad=True)
            if number == 4:
                x.grad = torch.ones(3)
            before = 0 if x.grad is None else x.grad.clone()
            assert_close(fast(x), x.detach() * 2)
            assert_close(x.grad, before + 2 * x.detach())


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_gradients_flow_through_a_replay(runtime: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    twin = copy.deepcopy(model)
    fast = hostjit.capture(model, runtime=runtime)
    for _ in range(5):
        x = randn(4, 3, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        found, expected = fast(x), twin(y)
        assert found.requires_grad
        assert_close(found, expected)
        found.square().sum().backward()
        expected.square().sum().backward()
        assert_close(x.grad, y.grad)
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            assert_close(a.grad, b.grad)
    assert fast.captured is not None
    with torch.no_grad():
        for _ in range(3):
            assert not fast(x).requires_grad


def test_parts_without_gradients() -> None:
    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = (w * x).sum(0, keepdim=True)
            scale, _ = scale.max(1)
        return x * w * scale + (w * 2).detach()

    fast = hostjit.capture(call)
    for _ in range(5):
        x, w = randn(4, 3), randn(3, requires_grad=True)
        v = w.detach().clone().requires_grad_()
        found, expected = fast(x, w), call(x, v)
        assert_close(found, expected)
        found.sum().backward()
        expected.sum().backward()
        assert_close(w.grad, v.grad)
    assert fast.captured is not None


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 10


def test_functions_with_a_backward_of_their_own() -> None:
    fast = hostjit.capture(_Twice.apply)
    inside = hostjit.capture(lambda x: torch.autograd.grad(_Twice.apply(x).sum(), x)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            x = randn(3, requires_grad=True)
            fast(x).sum().backward()
            assert_close(x.grad, torch.full((3,), 10.0))
            assert_close(inside(randn(3, requires_grad=True)), torch.full((3,), 10.0))
    assert fast.captured is None
    assert inside.captured is not None


def test_a_loss_that_was_used_up() -> None:
    weight = nn.Parameter(torch.ones(3))

    def step(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        loss = (weight * x).exp().sum()
        loss.backward()
        return loss

    fast = hostjit.capture(step)
    for _ in range(4):
        x = randn(3)
        found = fast(x)
        assert_close(found.detach(), x.exp().sum())
        assert_close(weight.grad, x * x.exp())
    assert fast.captured is not None


def test_writes_that_gradients_flow_through_run_eagerly() -> None:
    weight = nn.Parameter(torch.ones(3))

    def call(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(weight)

    fast = hostjit.capture(call)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            x = randn(3)
            expected = x.clone()
            fast(x).sum().backward()
            assert x.requires_grad
            assert_close(x.detach(), expected)


def test_dropout_of_other_strides_draws_the_same_numbers() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        noise = torch.empty(6, 4).t().normal_() + torch.empty(3, 4).t().uniform_().sum()
        return F.dropout(x.transpose(0, 1), 0.5), layer(x), noise

    with torch.no_grad():
        check(call, [(randn(2, 5, 8),) for _ in range(4)])


def test_recurrent_networks() -> None:
    layers: list[nn.Module] = [nn.LSTM(4, 6, 2, dropout=0.1), nn.GRU(4, 6)]
    for layer in layers:
        fast = hostjit.capture(layer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in range(8):
                with torch.set_grad_enabled(number >= 4):
                    x = randn(5, 2, 4)
                    torch.manual_seed(number)
                    expected = layer(x)[0]
                    torch.manual_seed(number)
                    assert_close(fast(x)[0], expected)
        assert fast.captured is not None


def test_a_recording_sets_nothing_else_of_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting what GPUs may round to, even to what it was, warns on machines without."""
    layer = nn.LSTM(4, 6)
    fast = hostjit.capture(layer)
    monkeypatch.setattr(torch._C, "_set_onednn_allow_tf32", None)
    for _ in range(3):
        x = randn(5, 2, 4)
        assert_close(fast(x)[0], layer(x)[0])


def test_random_numbers_and_reads() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(3)
        if noise.sum() > 1.5:
            return x + noise
        return x - torch.randn(3)

    fast = hostjit.capture(call)
    for seed in (0, 0, 1, 0, 2, 3, 0, 1):
        x = randn(3)
        torch.manual_seed(seed)
        expected, after = call(x), torch.rand(1)
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*reads numbers that it draws")
            assert_close(fast(x), expected)
        assert_close(torch.rand(1), after)


def test_reads_write_nothing_before_they_are_compared() -> None:
    total = torch.zeros(3)

    def call(x: torch.Tensor) -> torch.Tensor:
        total.add_(x)
        if total.sum() > 4:
            total.zero_()
        return total * 1

    fast = hostjit.capture(call)
    expected = torch.zeros(3)
    for _ in range(20):
        x = torch.rand(3).round(decimals=1)
        expected = expected + x
        if expected.sum() > 4:
            expected = torch.zeros(3)
        assert_close(fast(x), expected)
        assert_close(total, expected)


def test_modes_are_checked() -> None:
    fast = hostjit.capture(lambda x, w: x @ w)
    x, w = randn(3, 3), randn(3, 3)
    for _ in range(3):
        assert fast(x, w).dtype == torch.float32
        with torch.autocast("cpu", torch.bfloat16):
            assert fast(x, w).dtype == torch.bfloat16
        with torch.inference_mode():
            assert fast(x, w).is_inference()


def test_a_generator_that_is_seeded_is_seeded_by_replays() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        return x + torch.rand(3)

    fast = hostjit.capture(call)
    with no_warnings():
        for number in range(4):
            x, found = randn(3), []
            for run in (fast, call):
                torch.manual_seed(number)
                found.append((run(x), torch.get_rng_state()))
            assert_close(*found)
    assert fast.captured is not None


def test_backward_passes_run_in_the_thread_that_records() -> None:
    """On devices of their own they would run in others, whose code is not seen."""
    found: list[bool] = []

    def note(x: torch.Tensor) -> torch.Tensor:
        found.append(torch._C._is_multithreading_enabled())
        return x.clone()

    with torch.library._scoped_library("hostjit_threads", "DEF") as library:
        library.define("note(Tensor x) -> Tensor")
        library.impl("note", note, "CompositeExplicitAutograd")
        fast = hostjit.capture(torch.ops.hostjit_threads.note.default)
        for _ in range(2):
            fast(randn(3))
    assert found[:2] == [True, False]
    assert torch._C._is_multithreading_enabled()
