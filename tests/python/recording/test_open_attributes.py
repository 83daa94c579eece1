# SPDX-License-Identifier: Apache-2.0
"""Attributes that are another number at each call: one recording for all of them."""

import math
import warnings

import pytest
import torch
from torch import nn

import hostjit


def randn(seed):
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))


class Trainer:
    """A training step whose weights of losses others change between the calls."""

    def __init__(self, loss):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 3)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.loss = loss
        self.beta, self.count, self.more = 1.0, 0, None

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.loss(self, self.model(x))
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def anneal(trainer):
    trainer.beta *= 0.9
    trainer.count += 1


def beside_eager(loss, between=anneal, calls=16, compile=hostjit.compile):
    """Run calls beside eager's; returns how many recordings the last calls have made."""
    eager, trainer = Trainer(loss), Trainer(loss)
    step = compile(trainer.step)
    recordings = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(calls):
            found, expected = step(randn(seed)), eager.step(randn(seed))
            torch.testing.assert_close(found, expected)
            between(trainer)
            between(eager)
            recordings.append(len(step.specializations))
    torch.testing.assert_close([*trainer.model.parameters()], [*eager.model.parameters()])
    assert {k: v for k, v in vars(trainer).items() if type(v) in (int, float, bool)} == {
        k: v for k, v in vars(eager).items() if type(v) in (int, float, bool)
    }
    return step, recordings[-1] - recordings[calls // 2]


def weighted(self, y):
    return y.square().mean() + self.beta * y.abs().mean()


def weighted_behind(self, y):
    return y.square().mean() * self.beta + y.mean() / (1 + self.beta)


def decided(self, y):
    loss = y.square().mean()
    return loss * 2 if self.count % 3 == 0 else loss


def both(self, y):
    loss = y.square().mean() + self.beta * y.abs().mean()
    if self.count > 8:
        loss = loss - y.mean()
    return loss


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("loss", [weighted, weighted_behind, decided, both])
def test_one_recording_for_all(loss, compile):
    step, more = beside_eager(loss, compile=compile)
    assert more <= 1  # for another way
    if compile is hostjit.capture:
        assert step.captured is not None


def handed_on(self, y):
    return torch.nn.functional.huber_loss(y, torch.zeros_like(y), delta=self.beta)


def assigned(self, y):
    self.count += 1
    return y.square().mean() * (1 + self.count % 2)


def written_in_its_dict(self, y):
    first = y.square().mean() * self.beta
    vars(self)["beta"] = self.beta * 0.5
    return first + self.beta * y.abs().mean()


def assigned_from_it(self, y):
    loss = y.square().mean() * self.beta
    self.more = self.beta
    return loss


def by_name(self, y):
    return y.square().mean() * getattr(self, "beta")  # noqa: B009


def by_dict(self, y):
    return y.square().mean() * vars(self)["beta"]


def shown(self, y):
    return y.square().mean() * float(f"{self.beta:.2f}")


def raised(self, y):
    return y.square().mean() * self.beta**2 + math.sqrt(self.beta)


def nowhere_first(self, y):
    return y.square().mean() * (self.beta if self.count > 3 else 1.0)


@pytest.mark.parametrize(
    "loss",
    [
        handed_on,
        assigned,
        written_in_its_dict,
        assigned_from_it,
        by_name,
        by_dict,
        shown,
        raised,
        nowhere_first,
    ],
)
def test_calls_do_what_eager_does(loss):
    beside_eager(loss)


def to_others(values):
    def between(trainer):
        trainer.count += 1
        trainer.beta = values[trainer.count % len(values)]

    return between


@pytest.mark.parametrize(
    "values",
    [
        (0.5, 0.25, 0.125, 2, 3, 1),
        (0.5, 0.25, 0.125, True, False),
        (0.5, 0.25, 0.0, -0.0, -1.5, 1e30),
        (0.5, 0.25, 0.125, torch.tensor(2.0)),
    ],
    ids=["ints", "bools", "signs", "tensor"],
)
def test_values_of_all_kinds(values):
    beside_eager(weighted, between=to_others(values), calls=24)


def test_infinities_and_nan():
    values = (0.5, 0.25, 0.125, math.inf, math.nan, 0.75)

    def between(trainer):
        trainer.count += 1
        trainer.beta = values[trainer.count % len(values)]

    class Scale:
        def __init__(self):
            self.beta, self.count = 1.0, 0

        def scale(self, x):
            return x * self.beta + 1

    eager, other = Scale(), Scale()
    scale = hostjit.capture(other.scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(20):
            x = randn(seed)
            torch.testing.assert_close(scale(x), eager.scale(x), equal_nan=True)
            between(other)
            between(eager)


def test_numbers_of_several_objects():
    trainers = [Trainer(weighted) for _ in range(4)]
    known = [Trainer(weighted) for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps = [hostjit.compile(trainer.step) for trainer in trainers]
        for seed in range(10):
            for index in range(4):
                found = steps[index](randn(seed))
                torch.testing.assert_close(found, known[index].step(randn(seed)))
                for each in (trainers[index], known[index]):
                    each.beta *= 0.9 - 0.1 * index


def test_a_saved_recording_reads_the_number_of_its_file(tmp_path):
    trainer, eager = Trainer(both), Trainer(both)
    step = hostjit.capture(trainer.step)
    for seed in range(12):
        step(randn(seed))
        eager.step(randn(seed))
        anneal(trainer)
        anneal(eager)
    hostjit.save(step, tmp_path / "step.hostjit")
    loaded = hostjit.load(tmp_path / "step.hostjit")
    assert loaded.numbers["beta"] == trainer.beta
    for seed in range(12, 16):
        torch.testing.assert_close(loaded(randn(seed)), eager.step(randn(seed)))
        eager.beta *= 0.9
        loaded.numbers["beta"] *= 0.9
