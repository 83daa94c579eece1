# SPDX-License-Identifier: Apache-2.0
"""Objects that have one `__dict__`: what a call assigns to one, it reads of the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

WAYS = pytest.mark.parametrize(
    "compile",
    [
        hostjit.compile,
        lambda f: torch.compile(f, backend="hostjit"),
    ],
    ids=["compile", "torch.compile"],
)


class Shared:
    """Every instance has the attributes of every other."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self.__dict__ = attributes


@pytest.mark.filterwarnings("ignore:hostjit")
@WAYS
@pytest.mark.parametrize("reads_first", [False, True])
def test_reads_what_was_assigned_to_another(compile: Callable[..., Any], reads_first: bool) -> None:
    def results(make: Callable[..., Any]) -> list[Any]:
        attributes: dict[str, Any] = {"value": torch.zeros(2), "count": 1, "rate": 0.5}
        one, other = Shared(attributes), Shared(attributes)

        def step(x: Tensor) -> Tensor:
            before = other.value.sum() * other.rate if reads_first else 0
            one.value = x * 2 + other.count
            one.rate = other.rate + 1
            return before + other.value + 1 + other.rate

        run, found = make(step), []
        for number in range(5):
            found.append((run(torch.full((2,), float(number))).tolist(), one.rate))
            other.count += 1
        return found

    torch._dynamo.reset()
    assert results(compile) == results(lambda step: step)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_training_step_reads_what_the_module_assigned() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 1)
            self.hidden: Any = None

        def forward(self, x: Tensor) -> Tensor:
            self.hidden = self.inner(x)
            return self.hidden * 1

    def losses(make: Callable[..., Any]) -> list[float]:
        torch.manual_seed(0)
        net = Net()
        beside = Shared(net.__dict__)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (net(x) ** 2).mean() + beside.hidden.mean()  # type: ignore[attr-defined]
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = make(step)
        return [run(torch.randn(3, 4)).item() for _ in range(8)]

    assert losses(hostjit.compile) == pytest.approx(losses(lambda step: step), rel=1e-5)


@pytest.mark.filterwarnings("ignore:hostjit")
@WAYS
def test_an_object_that_the_code_gives_the_dict_of_another(compile: Callable[..., Any]) -> None:
    def step(x: Tensor, one: Any) -> Tensor:
        made = Shared({})
        made.__dict__ = one.__dict__
        made.value = x * 3
        result: Tensor = one.value + 1
        return result

    torch._dynamo.reset()
    run = compile(step)
    for number in range(5):
        x = torch.full((2,), float(number))
        expected = step(x, Shared({"value": torch.zeros(2)}))
        assert run(x, Shared({"value": torch.zeros(2)})).tolist() == expected.tolist()
