# SPDX-License-Identifier: Apache-2.0
"""Code that asks whether a tensor which it is given is one of those that it knows."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Known:
    def __init__(self, tensors: Any) -> None:
        self.tensors = tensors


def _of_optimizer(tensors: Sequence[Tensor]) -> Any:
    optimizer = torch.optim.Optimizer(list(tensors), {})
    for tensor in tensors:
        optimizer.state[tensor]["kept"] = 1
    return optimizer.state


CONTAINERS: dict[str, Callable[[Sequence[Tensor]], Any]] = {
    "dict": lambda tensors: dict.fromkeys(tensors, 1),
    "defaultdict": lambda tensors: collections.defaultdict(int, dict.fromkeys(tensors, 1)),
    "OrderedDict": lambda tensors: collections.OrderedDict.fromkeys(tensors, 1),
    "set": set,
    "frozenset": frozenset,
    "list": list,
    "tuple": tuple,
    "state of an optimizer": _of_optimizer,
    "ids": lambda tensors: {id(tensor) for tensor in tensors},
    "dict of ids": lambda tensors: {id(tensor): 1 for tensor in tensors},
}


def is_among(known: Known, p: Tensor) -> Tensor:
    return p * 2 if p in known.tensors else p * 3


def is_not_among(known: Known, p: Tensor) -> Tensor:
    return p * 3 if p not in known.tensors else p * 2


def is_one_of(known: Known, p: Tensor) -> Tensor:
    return p * 2 if any(q is p for q in known.tensors) else p * 3


def is_found(known: Known, p: Tensor) -> Tensor:
    return p * 2 if known.tensors.get(p) is not None else p * 3


def has_known_id(known: Known, p: Tensor) -> Tensor:
    return p * 2 if id(p) in known.tensors else p * 3


def _questions(container: str) -> list[Any]:
    if "ids" in container:
        return [has_known_id]
    if container in ("list", "tuple"):  # which compare by what is in tensors
        return [is_one_of]
    has_get = container not in ("set", "frozenset")
    return [is_among, is_not_among, is_one_of, *[is_found] * has_get]


BACKENDS: list[Callable[..., Any]] = [
    hostjit.compile,
    lambda function: torch.compile(function, backend="hostjit"),
]
CASES = [(name, question) for name in CONTAINERS for question in _questions(name)]


@pytest.mark.parametrize("compile", BACKENDS, ids=["compile", "torch.compile"])
@pytest.mark.parametrize("make", [nn.Parameter, torch.clone])
@pytest.mark.parametrize(("container", "question"), CASES)
def test_each_is_what_it_is(
    container: str,
    question: Callable[[Any, Tensor], Tensor],
    make: Callable[[Tensor], Tensor],
    compile: Callable[..., Any],
) -> None:
    """Dynamo compares no parameters with one another, and no keys with what is looked up."""
    torch._dynamo.reset()
    tensors = [make(torch.full((4,), n + 1.0)) for n in range(3)]
    known = Known(CONTAINERS[container](tensors[:2]))
    fast = compile(question)
    with torch.no_grad():
        for tensor in (*tensors, *reversed(tensors), *tensors):
            torch.testing.assert_close(fast(known, tensor), question(known, tensor))


def test_passes_of_a_loop_leave_out_what_is_frozen() -> None:
    """A pass is given a parameter, which it looks for among those that are frozen."""

    class Freezing(torch.optim.Optimizer):
        def __init__(self, parameters: list[nn.Parameter], frozen: Any) -> None:
            super().__init__(parameters, {})
            self.frozen = frozen

        def step(self) -> list[float]:  # type: ignore[override]
            norms = []
            with torch.no_grad():
                for p in self.param_groups[0]["params"]:
                    norms.append(p.norm().item())
                    if p not in self.frozen:
                        p.mul_(0.9)
            return norms

    found = []
    for compile in (hostjit.compile, lambda function: function):
        parameters = [nn.Parameter(torch.full((4,), n + 1.0)) for n in range(4)]
        optimizer = Freezing(parameters, frozenset(parameters[1::2]))
        step = compile(optimizer.step)
        found.append([step() for _ in range(12)])
    for ours, theirs in zip(*found, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
