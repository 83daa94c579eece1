# SPDX-License-Identifier: Apache-2.0
"""Numbers that are read at each call, and what takes the place of a file's by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import hostjit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saved.hostjit"


class Agent:
    def __init__(self) -> None:
        self.gain = 0.5
        self.weight = torch.ones(3)
        self.table = {"count": 2}

    def act(self, x: Tensor) -> Tensor:
        return x * self.gain * self.table["count"] + self.weight


def test_numbers_outside_of_the_arguments(path: Path) -> None:
    agent = Agent()
    compiled = hostjit.compile(agent.act, fallback=False)
    x = torch.arange(3.0)
    for agent.gain, agent.table["count"] in ((0.5, 2), (0.25, 2), (0.75, 3), (1.5, 4)):
        compiled(x)
    hostjit.save(compiled, path)
    loaded = hostjit.load(path)
    assert loaded.numbers == {"gain": 1.5, "table['count']": 4}
    torch.testing.assert_close(loaded(x), compiled(x))
    loaded.numbers.update({"gain": agent.gain, "table['count']": 7})
    agent.table["count"] = 7
    torch.testing.assert_close(loaded(x), agent.act(x))
    hostjit.save(loaded, path)
    assert hostjit.load(path).numbers == loaded.numbers
    loaded.numbers["gain"] = "much"
    with pytest.raises(hostjit.Error, match="no program for this call"):
        loaded(x)
    # An object that is given has its own.
    other = Agent()
    loaded = hostjit.load(path, target=other.act)
    assert loaded.numbers == {}
    for other.gain in (0.5, 2.5):
        torch.testing.assert_close(loaded(x), other.act(x))
    assert loaded.parameters["weight"] is other.weight


def test_variables_of_an_enclosing_function(path: Path) -> None:
    scale = 0.5

    def scaled(x: Tensor) -> Tensor:
        return x * scale

    compiled = hostjit.compile(scaled, fallback=False)
    x = torch.ones(3)
    for scale in (0.5, 0.25, 0.125):  # noqa: B007
        compiled(x)
    hostjit.save(compiled, path)
    loaded = hostjit.load(path)
    assert loaded.numbers == {"scale": 0.125}
    loaded.numbers["scale"] = 3.0
    torch.testing.assert_close(loaded(x), 3 * x)
    loaded = hostjit.load(path, target=scaled)
    scale = 5.0
    torch.testing.assert_close(loaded(x), 5 * x)


def test_given_names_are_names_of_the_file(path: Path) -> None:
    model = nn.Linear(3, 2)

    def run(x: Tensor) -> Tensor:
        return model(x)

    compiled = hostjit.compile(run)
    compiled(torch.ones(3))
    hostjit.save(compiled, path)
    text = r"none of its tensors is given: it has 'model\.weight', what is given has 'weight'"
    with pytest.raises(hostjit.Error, match=text):
        hostjit.load(path, parameters=model)
    other = nn.Linear(3, 2)
    for given in ({"model": other}, {"model": other.state_dict()}):
        loaded = hostjit.load(path, parameters=given)
        torch.testing.assert_close(loaded(torch.ones(3)), other(torch.ones(3)))


def test_tied_parameters_stay_tied(path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Linear(3, 3, bias=False)
            self.right = nn.Linear(3, 3, bias=False)
            self.right.weight = self.left.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.right(self.left(x))

    compiled = hostjit.compile(Tied())
    compiled(torch.ones(3))
    hostjit.save(compiled, path)
    other = Tied()
    for given in (other, other.state_dict()):
        loaded = hostjit.load(path, parameters=given)
        torch.testing.assert_close(loaded(torch.ones(3)), other(torch.ones(3)))
    other.right.weight = nn.Parameter(torch.zeros(3, 3))
    text = r"'left\.weight' and 'right\.weight' are one tensor of the saved program, and two"
    with pytest.raises(hostjit.Error, match=text):
        hostjit.load(path, parameters=other)


class Actor:
    def __init__(self) -> None:
        self.model = nn.Linear(3, 2)

    @hostjit.compile
    def act(self, x: Tensor) -> Tensor:
        return self.model(x)


def test_a_decorated_method_is_saved_without_its_object(path: Path) -> None:
    first, second = Actor(), Actor()
    x = torch.ones(1, 3)
    for actor in (first, second):
        actor.act(x)
    with pytest.raises(hostjit.Error, match="argument 0 is compared with an object: a Actor means"):
        hostjit.save(Actor.act, path)
    for actor in (first, second):
        hostjit.save(actor.act, path)
        loaded = hostjit.load(path)
        assert loaded.signatures == ["(float32[1, 3]), gradients disabled"]
        torch.testing.assert_close(loaded(x), actor.act(x))
    loaded = hostjit.load(path, target=first.act)
    for size in (1, 2):
        x = torch.randn(size, 3)
        torch.testing.assert_close(loaded(x), first.model(x))
    with pytest.raises(hostjit.Error, match="nothing is compiled yet"):
        hostjit.save(Actor().act, path)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    @hostjit.compile
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_a_program_for_all_modules_of_a_class(path: Path) -> None:
    def call(layer: nn.Module, x: Tensor) -> Tensor:
        return layer(x)

    layers = [Layer() for _ in range(4)]
    fast, x = hostjit.compile(call), torch.ones(1, 3)
    for layer in layers:
        layer(x)
        fast(layer.inner, x)
    with pytest.raises(hostjit.Error, match="its program answers for any Layer"):
        hostjit.save(layers[3].forward, path)
    with pytest.raises(
        hostjit.Error, match="argument 0 is compared with an object: a Linear means"
    ):
        hostjit.save(fast, path)
    single = hostjit.compile(layers[3])
    expected = single(x)
    hostjit.save(single, path)
    torch.testing.assert_close(hostjit.load(path)(x), expected)
