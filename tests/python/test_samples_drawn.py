# SPDX-License-Identifier: Apache-2.0
"""Steps that draw a sample by NumPy: what follows, up to the optimizer, is a program."""

import collections
import sys

import numpy as np
import pytest
import torch
from torch import nn

import hostjit
from hostjit.bytecode.splits import computes_gradients
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.compiling.split_calls import joined, place_behind

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

Sample = collections.namedtuple("Sample", "states actions rewards following")


class Memory:
    """A replay memory of arrays."""

    def __init__(self):
        generator = np.random.default_rng(0)
        self.states = generator.normal(size=(50, 4)).astype(np.float32)
        self.actions = generator.integers(0, 2, size=(50, 1))
        self.rewards = generator.normal(size=(50, 1)).astype(np.float32)
        self.draws = 0

    def sample(self, count):
        self.draws += 1
        at = np.random.randint(0, 49, size=count)
        found = self.states[at], self.actions[at], self.rewards[at], self.states[at + 1]
        return Sample(*map(torch.tensor, found))


class Agent:
    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.target = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        self.memory = Memory()
        self.updates = 0
        self.means = []

    def loss(self, sample):
        with torch.no_grad():
            best = self.target(sample.following).max(dim=1).values.reshape(-1, 1)
            wanted = sample.rewards + 0.9 * best
        found = torch.gather(self.net(sample.states), 1, sample.actions)
        return nn.functional.smooth_l1_loss(found, wanted)

    def learn(self, count):
        """One step."""
        sample = self.memory.sample(count)
        self.optimizer.zero_grad()
        loss = self.loss(sample)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def train(self, steps, count):
        """Steps whose losses NumPy averages, as of Stable-Baselines3."""
        losses = []
        for _ in range(steps):
            sample = self.memory.sample(count)
            loss = self.loss(sample)
            losses.append(loss.item())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.updates += steps
        self.means.append(float(np.mean(losses)))
        return losses


def calls_of(make, calls=14):
    """Results, parameters and what else is left, of calls that draw the same."""
    agent = Agent()
    call = make(agent)
    np.random.seed(1)
    results = [call(agent) for _ in range(calls)]
    rest = agent.updates, agent.memory.draws, agent.means
    return results, [p.detach().clone() for p in agent.net.parameters()], rest


def compare(call, method):
    expected = calls_of(lambda agent: call)

    def compiled(agent):
        setattr(agent, method, hostjit.compile(getattr(agent, method)))
        return call

    found = calls_of(compiled)
    torch.testing.assert_close(found[:2], expected[:2])
    assert found[2][:2] == expected[2][:2]
    assert found[2][2] == pytest.approx(expected[2][2], rel=1e-5)


def test_a_step():
    compare(lambda agent: agent.learn(8), "learn")


def test_passes_of_steps():
    compare(lambda agent: agent.train(3, 8), "train")


def functions_run(call):
    seen = set()

    def note(frame, event, argument):
        seen.add(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize(
    ("method", "given"), [("learn", (8,)), ("train", (3, 8))], ids=["step", "passes"]
)
def test_what_follows_is_a_program(method, given):
    agent = Agent()
    run = hostjit.compile(getattr(agent, method))
    np.random.seed(1)
    for _ in range(60):  # some are timed without programs
        run(*given)
    seen = functions_run(lambda: run(*given))
    assert "sample" in seen
    assert seen.isdisjoint({"loss", "forward", "backward"})


def test_an_error_of_what_draws_is_eagers():
    agent = Agent()
    learn = hostjit.compile(agent.learn)
    np.random.seed(1)
    for _ in range(6):
        learn(8)
    agent.memory.states = None
    with pytest.raises(TypeError, match="not subscriptable"):
        learn(8)


def drawn_first(memory, scale, *more, rate=1.0):
    sample = memory.sample(4)
    loss = (sample.states * scale).sum() * rate
    loss.backward()
    return loss


def with_the_rest(memory, *more):
    sample = memory.sample(4)
    loss = sample.states.sum()
    loss.backward(*more)
    return loss


def without_gradients(memory):
    sample = memory.sample(4)
    return sample.states.sum()


def break_in(function):
    code = function.__code__
    stack = [(code.co_filename, code.co_name, code.co_firstlineno + 1), ("memory.py", "sample", 3)]
    return CaptureError(CaptureFailure.GRAPH_BREAK, "NumPy computes", stack=stack)


def test_where_a_function_is_split():
    place = place_behind(drawn_first, break_in(drawn_first))
    assert place is not None
    assert computes_gradients(drawn_first.__code__, place)
    assert place_behind(with_the_rest, break_in(with_the_rest)) is None
    assert place_behind(without_gradients, break_in(without_gradients)) is None
    assert place_behind(drawn_first, break_in(with_the_rest)) is None


def test_both_parts_are_called_with_what_they_read():
    place = place_behind(drawn_first, break_in(drawn_first))
    given = []

    def noting(function):
        def run(*args, **kwargs):
            given.append((args[1:], kwargs))
            return function(*args, **kwargs)

        return run

    run = joined(drawn_first, (), place, lambda first: first, noting)
    np.random.seed(1)
    memory, scale = Memory(), torch.ones(4, requires_grad=True)
    loss = run(memory, scale, "more", rate=0.5)
    np.random.seed(1)
    torch.testing.assert_close(loss, drawn_first(Memory(), scale, "more", rate=0.5))
    assert given == [((None, scale), {"rate": 0.5})]
