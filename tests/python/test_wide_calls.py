# SPDX-License-Identifier: Apache-2.0
"""Calls that are given many values: Python makes tensors of them, what follows is compiled."""

from __future__ import annotations

import collections
import copy
import random
from typing import Any

import pytest
import torch
from in_parts import counted_captures
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

import hostjit
from hostjit.compiling.wide_calls import is_wide, places_behind_wide

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

Transition = collections.namedtuple("Transition", "state action after reward")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)


class Agent:
    """Learns from samples of a memory, as agents with a target network do."""

    def __init__(self, batch: int = 32) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
        self.target = copy.deepcopy(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.memory: collections.deque[Transition] = collections.deque(maxlen=200)
        self.batch = batch
        self.steps = 0

    def remember(self, draw: random.Random) -> None:
        state = torch.tensor([[draw.random() for _ in range(4)]])
        after = None if draw.random() < 0.1 else state + 1
        action = torch.tensor([[draw.randrange(3)]])
        self.memory.append(Transition(state, action, after, torch.tensor([draw.random()])))

    def learn(self) -> float | None:
        if len(self.memory) < self.batch:
            return None
        batch = Transition(*zip(*random.sample(self.memory, self.batch), strict=True))
        goes_on = torch.tensor([state is not None for state in batch.after])
        after = torch.cat([state for state in batch.after if state is not None])
        states, actions = torch.cat(batch.state), torch.cat(batch.action)
        rewards = torch.cat(batch.reward)
        values = self.net(states).gather(1, actions).squeeze(1)
        best = torch.zeros(self.batch)
        with torch.no_grad():
            best[goes_on] = self.target(after).max(1).values
        loss = functional.smooth_l1_loss(values, rewards + 0.9 * best)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.steps += 1
        if self.steps % 4 == 0:
            self.target.load_state_dict(self.net.state_dict())
        return loss.item()


def test_an_agent_learns_as_in_eager_mode() -> None:
    agents = Agent(), Agent()
    learn = agents[0].learn, hostjit.compile(agents[1].learn)
    for number in range(60):
        found = []
        for agent, step in zip(agents, learn, strict=True):
            agent.remember(random.Random(number))
            random.seed(number)
            found.append(step())
        assert (found[0] is None) == (found[1] is None)
        assert found[0] is None or found[0] == pytest.approx(found[1], rel=1e-4)
    assert_close(*(agent.net.state_dict() for agent in agents), rtol=1e-4, atol=1e-5)
    assert_close(*(agent.target.state_dict() for agent in agents), rtol=1e-4, atol=1e-5)


def sample(draw: random.Random, count: int = 40) -> list[tuple[Tensor, int, float]]:
    states = [torch.full((2,), draw.random()) for _ in range(count // 2)]
    return [(draw.choice(states), draw.randrange(2), draw.random()) for _ in range(count)]


def collated(batch: list[Any], scale: Tensor, /, *, shift: float = 0.5) -> Tensor:
    states, actions, rewards = zip(*batch, strict=True)
    stacked = torch.stack(states)
    chosen = torch.tensor(actions)
    given = torch.tensor(rewards)
    scale = scale * 2
    return (stacked.gather(1, chosen[:, None]).squeeze(1) * given * scale + shift).relu()


def reading_again(batch: list[Any], scale: Tensor) -> Tensor:
    stacked = torch.stack([state for state, _, _ in batch])
    return stacked.sum() * scale + len(batch)


def choosing(batch: list[Any], scale: Tensor) -> Tensor:
    if batch[0][1]:
        stacked = torch.stack([state for state, _, _ in batch])
    else:
        stacked = torch.stack([state + 1 for state, _, _ in batch])
    return (stacked * scale).sum(0)


def looping(batch: list[Any], scale: Tensor) -> Tensor:
    total = torch.zeros(2)
    for state, action, _ in batch:
        total = total + state * action
    total = total * scale
    return total.exp()


def behind_a_print(batch: list[Any], scale: Tensor) -> Tensor:
    print(end="")
    states = torch.stack([state for state, _, _ in batch])
    mean = states.mean(0)
    return mean * scale


def with_others(*batch: Any, **named: Tensor) -> Tensor:
    states = torch.stack([state for state, _, _ in batch])
    mean = states.mean(0)
    return mean * named["scale"] + len(named)


FUNCTIONS = [collated, reading_again, choosing, looping, behind_a_print]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("gradients", [False, True])
def test_answers_are_those_of_eager(function: Any, gradients: bool) -> None:
    fast = hostjit.compile(function)
    for number in range(12):
        batch = sample(random.Random(number))
        scale = torch.tensor(1.0 + number, requires_grad=gradients)
        with counted_captures() as count:
            found = fast(batch, scale)
        expected = function(batch, scale)
        assert_close(found, expected)
        if gradients:
            total = found.sum(), expected.sum()
            assert_close(*(torch.autograd.grad(each, scale)[0] for each in total))
        if function is not reading_again and number > 6:
            assert count[0] == 0


def test_keywords_and_arguments_that_the_rest_reads() -> None:
    fast = hostjit.compile(collated)
    for number in range(6):
        batch, scale = sample(random.Random(number)), torch.tensor(2.0)
        assert_close(fast(batch, scale, shift=number), collated(batch, scale, shift=number))
        assert_close(fast(batch, scale), collated(batch, scale))


def test_packed_arguments() -> None:
    fast = hostjit.compile(with_others)
    for number in range(6):
        batch, scale = sample(random.Random(number)), torch.tensor(2.0)
        assert_close(fast(*batch, scale=scale), with_others(*batch, scale=scale))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(2, 3)
        self.count = 0

    def forward(self, batch: list[Any]) -> Tensor:
        codes = [self.encoder(state) for state, _, _ in batch]
        stacked = torch.stack(codes)
        self.count += 1
        return stacked.softmax(1) * self.count

    def learn(self, batch: list[Any]) -> Tensor:
        return self.forward(batch) * 2


@pytest.mark.parametrize("kind", ["module", "method"])
def test_modules_and_methods(kind: str) -> None:
    model = Model()
    other = copy.deepcopy(model)
    fast = hostjit.compile(model if kind == "module" else model.learn)
    expected: Any = other if kind == "module" else other.learn
    for number in range(6):
        batch = sample(random.Random(number), count=20)
        assert_close(fast(batch), expected(batch))
    assert model.count == other.count


def test_errors_of_what_is_python() -> None:
    fast = hostjit.compile(collated)
    for number in range(4):
        fast(sample(random.Random(number)), torch.ones(()))
    bad = [*sample(random.Random(0)), (torch.ones(3), 0, 0.5)]
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        fast(bad, torch.ones(()))
    with pytest.raises(TypeError):
        fast(sample(random.Random(0)))
    batch = sample(random.Random(5))
    assert_close(fast(batch, torch.ones(())), collated(batch, torch.ones(())))


def test_parameters_that_are_given_are_compiled_with_the_rest() -> None:
    names = [f"p{number}" for number in range(70)]

    def function(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        for name in names[:-1]:
            x = torch.tanh(x * parameters[name])
        return x + parameters[names[-1]]

    assert places_behind_wide(function, (dict.fromkeys(names, 0), 0), {}) == {}
    parameters = {name: torch.randn(3) for name in names}
    fast = hostjit.compile(function, fallback=False)
    for _ in range(3):
        x = torch.randn(3)
        assert_close(fast(parameters, x), function(parameters, x))


def test_steps_of_parameters_that_are_given_are_recorded_whole() -> None:
    def step(parameters: list[Tensor], x: Tensor) -> Tensor:
        print(end="")
        for parameter in parameters:
            x = x * parameter
        loss = x.square().sum()
        found = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, found, strict=True):
            parameter.data.sub_(gradient, alpha=1e-3)
        return loss.detach()

    fast = hostjit.compile(step)
    mine = [torch.ones(2).mul_(1 + number / 10_000).requires_grad_() for number in range(65)]
    other = [parameter.detach().clone().requires_grad_() for parameter in mine]
    for _ in range(6):
        x = torch.randn(2)
        assert_close(fast(mine, x), step(other, x))
        assert_close(mine, other)


def test_places_are_ahead_of_gradients() -> None:
    def function(batch: list[Any], model: Any) -> Any:
        x = torch.stack(batch)
        loss = model(x)
        loss.backward()
        return loss

    places = places_behind_wide(function, ([0] * 65, None), {})
    assert list(places.values()) == [("model", "x"), ("loss",)]


def test_what_is_wide() -> None:
    assert not is_wide(list(range(64)))
    assert is_wide(list(range(65)))
    assert is_wide([(0, 1)] * 30)
    assert is_wide({"a": [[0] * 65]})
    assert is_wide(collections.deque(range(65)))
    assert not is_wide("a" * 100)
    assert not is_wide(torch.zeros(100))
    assert is_wide([1, 2, 3], most=2)
