# SPDX-License-Identifier: Apache-2.0
"""Objects that hold modules and logs, which calls bring: compared by what code reads of them."""

from __future__ import annotations

import collections
import copy
import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from same_values import assert_same
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*(runs (in parts|eagerly)|keeps meeting)")


class Agent:
    def __init__(self, number: int) -> None:
        self.name = f"agent{number}"
        self.policy = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
        self.optimizer = torch.optim.SGD(self.policy.parameters(), 0.1)
        self.memory: list[Tensor] = []
        self.recent: collections.deque[float] = collections.deque(maxlen=3)
        self.gain = 0.5 + number / 8
        self.steps = 0
        self.hidden = torch.zeros(3)


class Around:
    def __init__(self) -> None:
        self.agents: list[Any] = []


class InWorld(Agent):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.world = Around()
        self.world.agents.append(self)


@dataclasses.dataclass
class Config:
    name: str
    gain: float = 0.5


class Configured(Agent):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.config = Config(self.name, self.gain)


def act(agent: Any, x: Tensor) -> Any:
    return agent.policy(x) * agent.gain


def act_with_state(agent: Any, x: Tensor) -> Any:
    agent.steps += 1
    agent.hidden = torch.tanh(agent.policy(x) + agent.hidden)
    return agent.hidden * agent.steps


def act_by_config(agent: Any, x: Tensor) -> Any:
    return agent.policy(x) * agent.config.gain


def remember(agent: Any, x: Tensor) -> Any:
    y = agent.policy(x)
    agent.memory.append(y)
    return y + len(agent.memory)


def ask_for_name(agent: Any, x: Tensor) -> Any:
    return agent.policy(x) if agent.name == "agent5" else agent.policy(x) + 1


def return_the_name(agent: Any, x: Tensor) -> Any:
    return agent.policy(x), agent.name


def name_in_text(agent: Any, x: Tensor) -> Any:
    return agent.policy(x), f"{agent.name}: {agent.steps}"


def text_of_a_record(agent: Any, x: Tensor) -> Any:
    return agent.policy(x), str(agent.config)


def by_dict(agent: Any, x: Tensor) -> Any:
    return agent.policy(x), len(vars(agent)["name"]), sorted(agent.__dict__)


def by_names(agent: Any, x: Tensor) -> Any:
    total = agent.policy(x)
    for name in ("gain", "steps", "name"):
        value = getattr(agent, name)
        total = total + (len(value) if isinstance(value, str) else value)
    return total


def name_on_a_condition(agent: Any, x: Tensor) -> Any:
    if x.shape[0] == 2:
        return agent.policy(x), agent.name
    return agent.policy(x)


def copied(agent: Any, x: Tensor) -> Any:
    twin = copy.copy(agent)
    twin.gain = 2.0
    return twin.policy(x) * twin.gain, twin.name


def with_a_break(agent: Any, x: Tensor) -> Any:
    y = agent.policy(x)
    torch._dynamo.graph_break()
    return y * agent.gain, agent.name


def log(agent: Any, x: Tensor) -> Any:
    y = agent.policy(x)
    agent.recent.append(float(len(agent.recent)))
    return y, list(agent.recent)


def forget(agent: Any, x: Tensor) -> Any:
    agent.name = "nobody"
    return agent.policy(x)


def ask_for_a_field(agent: Any, x: Tensor) -> Any:
    return agent.policy(x), hasattr(agent, "extra"), getattr(agent, "extra", 3)


def record_as_key(agent: Any, x: Tensor) -> Any:
    return agent.policy(x) * {Config("agent1", 0.625).name: 2.0}.get(agent.config.name, 1.0)


def compare_records(agent: Any, x: Tensor) -> Any:
    return agent.policy(x) if agent.config == Config("agent4", agent.gain) else agent.policy(x) * 2


def replace_a_record(agent: Any, x: Tensor) -> Any:
    agent.config = dataclasses.replace(agent.config, gain=agent.config.gain * 0.5)
    return agent.policy(x) * agent.config.gain


def as_tuple(agent: Any, x: Tensor) -> Any:
    return agent.policy(x), dataclasses.astuple(agent.config)


def learn(agent: Any, x: Tensor) -> Any:
    with torch.enable_grad():
        loss = agent.policy(x).square().mean()
        agent.optimizer.zero_grad()
        loss.backward()
        agent.optimizer.step()
    return loss.detach()


FUNCTIONS: list[Callable[..., Any]] = [
    *(act, act_with_state, remember, ask_for_name, return_the_name, name_in_text, by_dict),
    *(by_names, name_on_a_condition, copied, with_a_break, log, forget, ask_for_a_field, learn),
]
OF_RECORDS: list[Callable[..., Any]] = [
    *(act_by_config, text_of_a_record, record_as_key, compare_records, replace_a_record, as_tuple)
]


def state_of(value: Any) -> Any:
    if isinstance(value, nn.Module):
        return {name: item.detach().clone() for name, item in value.state_dict().items()}
    if isinstance(value, (list, tuple, collections.deque)):
        return [state_of(item) for item in value]
    if isinstance(value, (Agent, Config)):
        return {name: state_of(item) for name, item in vars(value).items()}
    return value if isinstance(value, (Tensor, int, float, str)) else type(value)


def make_agents(kind: type[Agent], count: int = 10) -> list[Any]:
    torch.manual_seed(0)
    return [kind(number) for number in range(count)]


@pytest.mark.parametrize("gradients", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    ("kind", "function"),
    [
        *((kind, function) for kind in (Agent, InWorld) for function in FUNCTIONS),
        *((Configured, function) for function in OF_RECORDS),
    ],
    ids=lambda value: value.__name__,
)
def test_many_agents(kind: type[Agent], function: Callable[..., Any], gradients: bool) -> None:
    agents, twins = make_agents(kind), make_agents(kind)
    fast = hostjit.compile(function, fallback=True)
    with torch.set_grad_enabled(gradients):
        for turn in range(3):
            for number, (agent, twin) in enumerate(zip(agents, twins, strict=True)):
                x = torch.randn(2 if (number + turn) % 4 == 3 else 5, 3)
                if function in (act_with_state, remember):
                    x = torch.randn(3)
                assert_same(fast(agent, x), function(twin, x))
                assert_same(state_of(agent), state_of(twin))
                for one in (agent, twin):  # what others do to them
                    one.memory.append(torch.ones(number))
                    if turn == 1:
                        one.name, one.gain = "agent5" if number % 2 else "another", 1.25
                        one.hidden = torch.ones(3)
                    if turn == 1 and number == 6:
                        one.extra = 7
                    if turn == 1 and number == 7:
                        one.policy = nn.Sequential(nn.Linear(3, 3))
                        torch.nn.init.constant_(one.policy[0].weight, 0.1)
                        torch.nn.init.constant_(one.policy[0].bias, 0.2)


@pytest.mark.parametrize("kind", [Agent, InWorld])
@pytest.mark.parametrize("function", [act, act_with_state])
def test_one_program_for_all(kind: type[Agent], function: Callable[..., Any]) -> None:
    fast = hostjit.compile(function, fallback=False)
    agents, twins = make_agents(kind, 12), make_agents(kind, 12)
    x = torch.randn(3)
    with torch.no_grad():
        for _ in range(3):
            for agent, twin in zip(agents, twins, strict=True):
                assert_same(fast(agent, x), function(twin, x))
                agent.memory.append(x)
    assert len(fast.specializations) <= 4


def test_two_agents_have_programs_of_their_own() -> None:
    fast = hostjit.compile(act, fallback=False)
    agents = make_agents(Agent, 2)
    x = torch.randn(3)
    for agent in agents * 3:
        assert_same(fast(agent, x), act(agent, x))
    assert len(fast.specializations) == 2


def test_agents_of_one_call_each() -> None:
    fast = hostjit.compile(act, fallback=False)
    x = torch.randn(3)
    for number in range(12):
        agent = Agent(number)
        assert_same(fast(agent, x), act(agent, x))
        del agent
        gc.collect()
    assert len(fast.specializations) <= 4


def test_a_method_of_their_class() -> None:
    class Actor(Agent):
        @hostjit.compile(fallback=False)
        def act(self, x: Tensor) -> Tensor:
            self.steps += 1
            y: Tensor = self.policy(x) * self.gain
            return y

    x = torch.randn(3)
    for number in range(12):
        actor = Actor(number)
        expected = actor.policy(x) * actor.gain
        assert_same(actor.act(x), expected)
        assert_same(actor.act(x), expected)
        assert actor.steps == 2
    assert len(Actor.act.specializations) <= 5


@dataclasses.dataclass
class Batch:
    values: Tensor
    origin: str


def test_records_with_a_name_that_nothing_reads() -> None:
    def double(batch: Batch) -> Tensor:
        return batch.values * 2

    fast = hostjit.compile(double, fallback=False)
    for number in range(12):
        batch = Batch(torch.randn(3), f"file{number}")
        assert_same(fast(batch), double(batch))
    assert len(fast.specializations) <= 2


def test_a_field_that_a_later_program_reads() -> None:
    def tell(batch: Batch) -> Any:
        return batch.values * 2 if batch.values.dim() == 1 else (batch.values, batch.origin)

    fast = hostjit.compile(tell, fallback=True)
    for number in range(12):
        batch = Batch(torch.randn(*([2] * (number % 3 + 1))), f"file{number // 3}")
        assert_same(fast(batch), tell(batch))


@dataclasses.dataclass(eq=False)
class Node:
    value: Tensor
    behind: Any = None


class LoggingNode(Node):
    def __init__(self, value: Tensor, behind: Any = None) -> None:
        super().__init__(value, behind)
        self.log: list[str] = []


def add_the_next(node: Node, x: Tensor) -> Tensor:
    return node.value * x + (0 if node.behind is None else node.behind.value)


@pytest.mark.parametrize("kind", [Node, LoggingNode])
@pytest.mark.parametrize("lengths", [(1, 1, 1, 2, 3, 500, 20_000, 2), (20_000, 3, 20_000)])
def test_long_chains_of_objects(kind: type[Node], lengths: tuple[int, ...]) -> None:
    fast = hostjit.compile(add_the_next, fallback=True)
    x = torch.randn(2)
    for length in lengths:
        nodes: list[Node] = []
        for _ in range(length):
            nodes.append(kind(torch.randn(2), nodes[-1] if nodes else None))
        assert_same(fast(nodes[-1], x), add_the_next(nodes[-1], x))
        while nodes:  # a chain that goes at once takes the stack
            nodes.pop().behind = None
