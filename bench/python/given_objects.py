# SPDX-License-Identifier: Apache-2.0
"""Microseconds of a turn in which one compiled function is given many objects, one after the other.

python bench/python/given_objects.py
python bench/python/given_objects.py --compilers eager,hostjit --cases layers --rounds 101
"""

import dataclasses
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from comparison import COMPILERS, begin, compare, parse, report
from measure import Timed
from parts import with_own_code
from report import Row
from torch import Tensor, nn

# Turns before the comparison: what compiles has compiled.
TURNS = 4

Compile = Callable[[Any], Any]
Turn = Callable[[Tensor], Tensor]


def population(compiled: Compile) -> tuple[Turn, Tensor]:
    """Twenty small networks that one function evaluates, as a search over networks does."""
    networks = [nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 1)) for _ in range(20)]

    def evaluate(network: nn.Module, x: Tensor) -> Tensor:
        value: Tensor = network(x)
        return value

    function = compiled(with_own_code(evaluate))

    def turn(x: Tensor) -> Tensor:
        return torch.stack([function(network, x) for network in networks])

    return turn, torch.randn(4, 10)


def layers(compiled: Compile) -> tuple[Turn, Tensor]:
    """A model of 24 small layers, the forward of whose class is what is compiled."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.wide, self.narrow = (
                nn.LayerNorm(32),
                nn.Linear(32, 64),
                nn.Linear(64, 32),
            )

        def forward(self, x: Tensor) -> Tensor:
            return x + self.narrow(torch.relu(self.wide(self.norm(x))))

    Layer.forward = compiled(with_own_code(Layer.forward))  # type: ignore[method-assign]
    return nn.Sequential(*(Layer() for _ in range(24))), torch.randn(2, 32)


class Agent:
    """An agent with a memory of its own, of which it keeps more than a step reads."""

    def __init__(self, number: int) -> None:
        self.name = f"agent {number}"
        self.cell, self.head = nn.GRUCell(8, 16), nn.Linear(16, 2)
        self.optimizer = torch.optim.Adam(self.cell.parameters())
        self.rewards: list[float] = []
        self.memory = torch.zeros(1, 16)
        self.steps = 0

    def act(self, x: Tensor) -> Tensor:
        """Return an action."""
        self.steps += 1
        self.memory = self.cell(x, self.memory)
        action: Tensor = torch.tanh(self.head(self.memory))
        return action


def agents(compiled: Compile) -> tuple[Turn, Tensor]:
    """Twelve agents, each of which a turn asks for an action."""
    crew = [Agent(number) for number in range(12)]
    act = compiled(with_own_code(Agent.act))

    def turn(x: Tensor) -> Tensor:
        for agent in crew:
            agent.rewards.append(0.5)
        return torch.stack([act(agent, x) for agent in crew])

    return turn, torch.randn(1, 8)


@dataclasses.dataclass
class Body:
    """A body in a simulation."""

    name: str
    place: Tensor
    speed: Tensor
    age: float = 0.0


def bodies(compiled: Compile) -> tuple[Turn, Tensor]:
    """Twelve records of a simulation, each of which a turn moves."""
    found = [Body(f"body {n}", torch.randn(3), torch.randn(3)) for n in range(12)]

    def move(body: Body, force: Tensor) -> None:
        body.speed = body.speed * 0.99 + force * 0.01
        body.place = body.place + body.speed * 0.01
        body.age += 0.01

    function = compiled(with_own_code(move))

    def turn(force: Tensor) -> Tensor:
        for body in found:
            function(body, force)
        return torch.stack([body.place * body.age for body in found])

    return turn, torch.randn(3)


CASES: dict[str, Callable[[Compile], tuple[Turn, Tensor]]] = {
    case.__name__: case for case in (population, layers, agents, bodies)
}


def measure(name: str, compilers: list[str], rounds: int) -> list[Row]:
    """Compare the results of each compiler with eager's, then time those that agree."""
    expected = turns(*make(name, "eager"))

    def prepare(compiler: str) -> Timed:
        turn, x = make(name, compiler)
        torch.testing.assert_close(turns(turn, x), expected, rtol=1e-3, atol=1e-4)
        return Timed(turn, (x,))

    return compare(name, {name: partial(prepare, name) for name in compilers}, rounds)


def make(name: str, compiler: str) -> tuple[Turn, Tensor]:
    torch.manual_seed(0)
    return CASES[name](COMPILERS[compiler])


def turns(turn: Turn, x: Tensor) -> list[Tensor]:
    return [turn(x) for _ in range(TURNS)]


def main() -> int:
    arguments = parse("Microseconds of turns with many objects.", CASES)
    begin(arguments.threads)
    rows: list[Row] = []
    with torch.no_grad():
        for name in arguments.cases:
            rows += measure(name, arguments.compilers, arguments.rounds)
    return report(rows, arguments.json, arguments.markdown)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="hostjit")
    sys.exit(main())
