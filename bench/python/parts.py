# SPDX-License-Identifier: Apache-2.0
"""Microseconds of functions that nobody can capture whole: prints, masks, decisions, whole steps.

python bench/python/parts.py
python bench/python/parts.py --compilers eager,hostjit --cases step,masked --rounds 101
"""

import collections
import io
import itertools
import random
import sys
import types
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from comparison import COMPILERS, begin, compare, parse, report
from measure import Timed
from report import Row
from torch import Tensor, nn

# Calls before the comparison: what compiles has compiled, and has given up recording.
CALLS = 24
NOWHERE = io.StringIO()

Function = Callable[..., Any]
# A list has the arguments of one call after the other, over and over.
Case = tuple[Function, tuple[Any, ...] | list[tuple[Any, ...]]]


def printing() -> Case:
    """Pointwise work with a print in the middle."""

    def function(x: Tensor) -> Tensor:
        y = (x * 2).relu() + 1
        print("half way", file=NOWHERE)
        return (y * 3).tanh() - x

    return function, (torch.randn(64),)


def nonzero() -> Case:
    """Pointwise work before and after the places of what is positive."""

    def function(x: Tensor) -> Tensor:
        places = ((x * 2).tanh() + 0.1 > 0).nonzero()
        return (places.float() * 2 + 1).sqrt()

    return function, (torch.randn(64),)


def branch() -> Case:
    """A decision on the value of a tensor."""

    def function(x: Tensor) -> Tensor:
        y = (x * 2).tanh() + 1
        return y.exp() * x if y.sum() > 0 else y.sigmoid() - x

    return function, (torch.randn(64),)


def layers(*widths: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(m, n), nn.Tanh()) for m, n in itertools.pairwise(widths))
    )


def masked() -> Case:
    """A model that goes on with the rows that a mask leaves."""
    first, second = layers(16, 32, 16), layers(16, 32, 4)

    def function(x: Tensor, mask: Tensor) -> Tensor:
        with torch.no_grad():
            return second(first(x)[mask])

    return function, (torch.randn(8, 16), torch.arange(8) % 3 > 0)


def step() -> Case:
    """Forward, loss, backward, AdamW and the loss as a number, in one function."""
    model = layers(32, 64, 64, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def function(x: Tensor, target: Tensor) -> float:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    return function, (torch.randn(1, 32), torch.randn(1, 8))


def minibatches() -> Case:
    """Four training steps in a loop that adds up their losses, as an update of PPO does."""
    model = layers(32, 64, 64, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def function(x: Tensor, target: Tensor) -> float:
        total = 0.0
        for rows, wanted in zip(x.split(4), target.split(4), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(rows), wanted)
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total

    return function, (torch.randn(16, 32), torch.randn(16, 8))


def logging() -> Case:
    """A training step that logs its loss ahead of the backward pass."""
    model = layers(32, 64, 64, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses: collections.deque[float] = collections.deque(maxlen=100)

    def function(x: Tensor, target: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(model(x), target)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return function, (torch.randn(1, 32), torch.randn(1, 8))


def planner() -> Case:
    """Actions made better four times by the gradient of their cost, over five steps of a model."""
    model = layers(6, 32, 4)

    def function(state: Tensor, actions: Tensor) -> Tensor:
        for _ in range(4):
            actions = actions.detach().requires_grad_()
            reached, cost = state, torch.zeros(())
            for action in actions:
                reached = reached + 0.1 * model(torch.cat([reached, action]))
                cost = cost + reached.square().sum() + 0.01 * action.square().sum()
            (gradient,) = torch.autograd.grad(cost, actions)
            actions = actions - 0.05 * gradient
        return actions.detach()

    return function, (torch.randn(4), torch.zeros(5, 2))


def replay() -> Case:
    """A step of Q-learning from 32 transitions of a memory: tensors, ints, floats and bools."""
    model, target = layers(4, 64, 64, 2), layers(4, 64, 64, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    draw = random.Random(0)
    memory: collections.deque[Any] = collections.deque(maxlen=1000)
    state = torch.randn(4)
    for _ in range(500):
        after = torch.randn(4)
        memory.append((state, draw.randrange(2), draw.random(), after, draw.random() < 0.1))
        state = after

    def function() -> float:
        batch = draw.sample(memory, 32)
        states, actions, rewards, afters, ends = zip(*batch, strict=True)
        before, behind = torch.stack(states), torch.stack(afters)
        chosen, given = torch.tensor(actions), torch.tensor(rewards)
        goes_on = 1 - torch.tensor(ends, dtype=torch.float32)
        values = model(before).gather(1, chosen.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            wanted = given + 0.99 * target(behind).max(1).values * goes_on
        loss = nn.functional.smooth_l1_loss(values, wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        return loss.item()

    return function, ()


def solver() -> Case:
    """Conjugate gradients for eight right sides, until the residual is small."""
    root = torch.randn(16, 16)
    matrix = root @ root.T / 16 + torch.eye(16)

    def function(side: Tensor) -> Tensor:
        x = torch.zeros_like(side)
        residual = direction = side
        square = residual @ residual
        while square.sqrt().item() > 1e-4:
            image = matrix @ direction
            step = square / (direction @ image)
            x = x + step * direction
            residual = residual - step * image
            now = residual @ residual
            direction = residual + (now / square) * direction
            square = now
        return x

    return function, [(torch.randn(16),) for _ in range(8)]


def descending() -> Case:
    """Gradient descent for forty systems of equations: forty numbers of passes."""

    def function(matrix: Tensor, side: Tensor) -> tuple[Tensor, int]:
        x = torch.zeros(matrix.shape[1])
        for passes in range(500):  # noqa: B007
            residual = matrix @ x - side
            if residual.square().sum() < 1e-4:
                break
            x = x - 0.05 * (residual @ matrix)
        return x, passes

    return function, [(torch.randn(4, 12), torch.randn(4)) for _ in range(40)]


def fitting() -> Case:
    """Thirty steps of an optimizer that each call makes, and a list of the losses."""

    def function(inputs: Tensor, targets: Tensor) -> tuple[Tensor, list[float]]:
        weight = torch.zeros(8, requires_grad=True)
        optimizer = torch.optim.Adam([weight], lr=0.05)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = (inputs @ weight - targets).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return weight.detach(), losses

    return function, [(torch.randn(16, 8), torch.randn(16)) for _ in range(8)]


def refining() -> Case:
    """Steps of an optimizer that each call makes, until the cost is small: none to twenty."""

    def function(controls: Tensor, target: Tensor) -> tuple[Tensor, int, bool]:
        controls = controls.clone().requires_grad_(True)
        optimizer = torch.optim.Adam([controls], lr=0.1)
        for i in range(20):
            optimizer.zero_grad()
            cost = (controls.cumsum(0) - target).square().sum()
            if cost.item() < 0.05:
                return controls.detach(), i, True
            cost.backward()
            optimizer.step()
        return controls.detach(), 20, False

    targets = torch.randn(16, 5)
    scales = [2.0, 2.0, *(0.02 * i for i in range(14))]
    near = [
        (each.diff(prepend=torch.zeros(1)) + scale * torch.randn(5), each)
        for each, scale in zip(targets, scales, strict=True)
    ]
    return function, near


def collecting() -> Case:
    """Gradient descent until the loss is small, and a list of the losses."""

    def function(matrix: Tensor, side: Tensor) -> tuple[Tensor, list[float]]:
        x, losses = torch.zeros(matrix.shape[1]), []
        while True:
            residual = matrix @ x - side
            loss = float(residual.square().sum())
            losses.append(loss)
            if loss < 1e-4:
                return x, losses
            x = x - 0.05 * (residual @ matrix)

    return function, [(torch.randn(4, 12), torch.randn(4)) for _ in range(40)]


def converging() -> Case:
    """Gradient descent until the loss hardly changes, by the last two in a list of them."""

    def function(matrix: Tensor, side: Tensor) -> tuple[Tensor, list[float]]:
        x, losses = torch.zeros(matrix.shape[1]), []
        while True:
            residual = matrix @ x - side
            losses.append(residual.square().sum().item())
            if len(losses) > 3 and losses[-2] - losses[-1] < 1e-2:
                return x, losses
            x = x - 0.02 * (residual @ matrix)

    return function, [(torch.randn(16, 12), torch.randn(16)) for _ in range(40)]


def accepting() -> Case:
    """Gradient descent whose steps are accepted or not, each time with another size."""

    def function(x: Tensor, target: Tensor) -> tuple[Tensor, float, int]:
        step, rejected = 1.0, 0
        cost = (torch.exp(x) - target).square().sum()
        while cost.item() > 1e-6 and rejected < 40:
            gradient = 2 * (torch.exp(x) - target) * torch.exp(x)
            trial = x - step * gradient
            trial_cost = (torch.exp(trial) - target).square().sum()
            if trial_cost < cost:
                x, cost = trial, trial_cost
                step *= 1.2
            else:
                step *= 0.5
                rejected += 1
        return x, step, rejected

    def made() -> tuple[Tensor, Tensor]:
        # In double precision: what is accepted is not decided by rounding.
        return torch.randn(8).double() / 3, torch.rand(8).double() + 0.5

    return function, [made() for _ in range(40)]


def tracking() -> Case:
    """A filter over up to a hundred measurements, each with its time step and noise."""
    steps = [0.05 + 0.01 * (i % 4) for i in range(100)]

    def function(measured: Tensor, noise: Tensor) -> tuple[Tensor, list[float]]:
        state, variance, errors = torch.zeros(4), torch.ones(4), []
        for t, (row, scale, dt) in enumerate(zip(measured, noise, steps, strict=True)):
            variance = variance + 0.1 * dt
            gain = variance / (variance + scale)
            error = row - state
            state = state + gain * error
            variance = (1 - gain) * variance
            errors.append(error.square().sum().item())
            if errors[-1] > 60 and t > 5:
                break
        return state, errors

    return function, [(torch.randn(100, 4), torch.rand(100, 4) + 0.1) for _ in range(8)]


def resetting() -> Case:
    """Steps of an environment that keeps its state, and starts again by what is in that."""
    held = {"state": torch.zeros(4)}

    def function(action: Tensor) -> tuple[Tensor, bool]:
        held["state"] = held["state"] * 0.99 + action
        done = bool(held["state"].abs().max() > 3)
        if done:
            held["state"] = torch.zeros(4)
        return held["state"], done

    return function, [(torch.full((4,), 0.3 + 0.1 * (i % 5)),) for i in range(8)]


def answering() -> Case:
    """A service that answers texts by a small model, none of which comes again soon."""
    vocabulary = {f"w{i}": i for i in range(100)}
    words, model = nn.Embedding(101, 32), Classifier()

    def function(text: str) -> tuple[int, float]:
        numbers = [vocabulary.get(word, 100) for word in text.split()]
        with torch.no_grad():
            found = model(words(torch.tensor([numbers])).mean(1))
        best = int(found.argmax())
        return best, found[0, best].item()

    chosen = random.Random(0)
    texts = [" ".join(f"w{chosen.randrange(110)}" for _ in range(3 + i % 9)) for i in range(64)]
    return function, [(text,) for text in texts]


def windowing() -> Case:
    """An agent that tells the mean of its last fifty values."""
    layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    values: list[float] = []

    def function(x: Tensor) -> tuple[Tensor, float]:
        with torch.no_grad():
            y = layers(x)
        values.append(y.mean().item())
        if len(values) > 50:
            values.pop(0)
        return y, sum(values) / len(values)

    return function, [(torch.randn(8),) for _ in range(8)]


class Classifier(nn.Module):
    """Tells which of three classes a row is of."""

    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Linear(32, 64), nn.Linear(64, 64)
        self.layers = nn.Sequential(first, nn.GELU(), second, nn.GELU(), nn.Linear(64, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).softmax(-1)


def episode() -> Case:
    """Up to a hundred steps of a simulation, by rows of actions, which fill rows of two tensors."""
    mass = layers(8, 8)

    def function(state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, int]:
        states, rewards = torch.zeros(100, 8), torch.zeros(100)
        with torch.no_grad():
            for t in range(100):
                state = state + 0.05 * (torch.tanh(mass(state)) + actions[t])
                states[t] = state
                rewards[t] = -state.square().sum()
                if state.abs().max() > 4:
                    break
        return states, rewards, t

    return function, [(torch.randn(8), torch.randn(100, 8) * 2) for _ in range(40)]


def settling() -> Case:
    """A layer that is run until its state settles, for eight inputs, and a head behind that."""
    layer, head = layers(16, 16), layers(16, 4)

    def function(start: Tensor) -> Tensor:
        with torch.no_grad():
            state = torch.zeros_like(start)
            for _ in range(100):
                now = layer(state) * 0.8 + start
                if torch.linalg.vector_norm(now - state) < 1e-3:
                    break
                state = now
            return head(state)

    return function, [(torch.randn(1, 16),) for _ in range(8)]


def searching() -> Case:
    """A step along a gradient that is halved until the cost is less, from eight states."""
    model = layers(8, 32, 1)

    def function(start: Tensor) -> Tensor:
        state = start.detach().requires_grad_()
        cost = model(state).square().sum()
        (gradient,) = torch.autograd.grad(cost, state)
        with torch.no_grad():
            length, wanted = 8.0, 0.5 * gradient.square().sum()
            while length > 1e-4:
                moved = state - length * gradient
                if model(moved).square().sum() <= cost - length * wanted:
                    return moved
                length *= 0.5
            return state.detach()

    return function, [(torch.randn(1, 8),) for _ in range(8)]


class RungeKutta:
    """Integrates by four stages a step; made by each call."""

    def __init__(self, field: nn.Module) -> None:
        self.field = field
        self.calls = 0

    def slope(self, x: Tensor) -> Tensor:
        self.calls += 1
        slope: Tensor = self.field(x)
        return slope

    def check(self, x: Tensor) -> None:
        if not self.slope(x).isfinite().all():
            raise ValueError("the field has no value where it begins")

    def step(self, x: Tensor, width: float) -> Tensor:
        first = self.slope(x)
        second = self.slope(x + width / 2 * first)
        third = self.slope(x + width / 2 * second)
        fourth = self.slope(x + width * third)
        return x + width / 6 * (first + 2 * second + 2 * third + fourth)


def integrating() -> Case:
    """Four steps of an integrator that the call makes, and that checks what it is given."""
    field = layers(4, 16, 4)

    def function(x: Tensor) -> Tensor:
        with torch.no_grad():
            integrator = RungeKutta(field)
            integrator.check(x)
            for _ in range(4):
                x = integrator.step(x, 0.25)
            return x / integrator.calls

    return function, (torch.randn(3, 4),)


CASES: dict[str, Callable[[], Case]] = {
    case.__name__: case
    for case in (
        *(printing, nonzero, branch, masked, step, minibatches, logging, replay, planner),
        *(
            solver,
            descending,
            collecting,
            converging,
            episode,
            fitting,
            refining,
            settling,
            searching,
        ),
        *(integrating, accepting, tracking, resetting, answering, windowing),
    )
}


def with_own_code(function: Any) -> Function:
    """Copy a function: Dynamo would search what it compiled for others of the same code."""
    code = function.__code__.replace()
    return types.FunctionType(code, function.__globals__, None, None, function.__closure__)


def measure(name: str, compilers: list[str], rounds: int) -> list[Row]:
    """Compare the results of each compiler with eager's, then time those that agree."""
    expected = calls(*called(*make(name, "eager")))

    def prepare(compiler: str) -> Timed:
        function, arguments = called(*make(name, compiler))
        torch.testing.assert_close(calls(function, arguments), expected, rtol=1e-3, atol=1e-4)
        return Timed(function, arguments)

    return compare(name, {name: partial(prepare, name) for name in compilers}, rounds)


def make(name: str, compiler: str) -> Case:
    torch.manual_seed(0)
    function, arguments = CASES[name]()
    return COMPILERS[compiler](with_own_code(function)), arguments


def called(
    function: Function, arguments: tuple[Any, ...] | list[tuple[Any, ...]]
) -> tuple[Function, tuple[Any, ...]]:
    """Return what is called, and its arguments."""
    if isinstance(arguments, tuple):
        return function, arguments
    each = itertools.cycle(arguments)
    return lambda: function(*next(each)), ()


def calls(function: Function, arguments: tuple[Any, ...]) -> list[Any]:
    return [function(*arguments) for _ in range(CALLS)]


def main() -> int:
    arguments = parse("Microseconds of calls that run in parts.", CASES)
    begin(arguments.threads)
    torch._inductor.config.fallback_random = True  # results are compared
    rows: list[Row] = []
    for name in arguments.cases:
        rows += measure(name, arguments.compilers, arguments.rounds)
    return report(rows, arguments.json, arguments.markdown)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="hostjit")
    warnings.filterwarnings("ignore", category=FutureWarning)
    sys.exit(main())
