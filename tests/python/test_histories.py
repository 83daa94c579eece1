# SPDX-License-Identifier: Apache-2.0
"""What code may ask of a tensor that depends on what was done with it before the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from no_warnings import no_warnings
from torch import Tensor, nn

import hostjit


def leaf() -> Tensor:
    return torch.arange(4.0).requires_grad_()


def hooked() -> Tensor:
    x = leaf()
    x.register_hook(lambda gradient: gradient)
    return x


def retaining() -> Tensor:
    x = leaf() * 1
    x.retain_grad()
    return x


MADE: dict[str, Callable[[], Tensor]] = {
    "leaf": leaf,
    "result": lambda: leaf() * 1,
    "hooked": hooked,
    "retaining": retaining,
    "one of several": lambda: (leaf() * 1).chunk(2)[1],
    "plain": lambda: torch.arange(4.0),
    "view": lambda: torch.arange(8.0)[4:],
    "other view": lambda: torch.arange(16.0)[2:6],
}
QUESTIONS: dict[str, Callable[[Tensor], Any]] = {
    "is_leaf": lambda x: x.is_leaf,
    "grad_fn": lambda x: x.grad_fn is None,
    "retains_grad": lambda x: x.retains_grad,
    "output_nr": lambda x: x.output_nr == 0,
    "_backward_hooks": lambda x: x._backward_hooks is None,
    "_base": lambda x: x._base is None,
    "_is_view": lambda x: x._is_view(),
    "storage_offset": lambda x: x.storage_offset() == 4,
    "size of the storage": lambda x: x.untyped_storage().size() == 16,
    "bytes of the storage": lambda x: x.untyped_storage().nbytes() == 16,
    "size of the storage of a view": lambda x: x[1:].untyped_storage().size() == 16,
}


@pytest.mark.filterwarnings("default:hostjit. ")
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("way", ["hostjit.compile", "torch.compile", "hostjit.capture"])
def test_the_answer_is_of_the_call(way: str, question: str) -> None:
    torch._dynamo.reset()
    ask = QUESTIONS[question]

    def function(x: Tensor) -> Tensor:
        return x.detach() * (2 if ask(x) else 3)

    compile = {
        "hostjit.compile": hostjit.compile,
        "torch.compile": lambda f: torch.compile(f, backend="hostjit"),
        "hostjit.capture": hostjit.capture,
    }[way]
    fast = compile(function)  # type: ignore[operator]
    for _ in range(2):
        for name, make in MADE.items():
            x = make()
            assert torch.equal(fast(x), function(x)), name


def test_of_parameters_and_of_what_needs_no_gradients_it_is_known() -> None:
    module = nn.Linear(2, 2)

    def function(x: Tensor) -> Tensor:
        assert module.weight.is_leaf and x.grad_fn is None and not x.retains_grad
        return module(x)  # type: ignore[no-any-return]

    with no_warnings():
        x = torch.ones(2)
        fast = hostjit.compile(function)
        assert torch.equal(fast(x), function(x))
