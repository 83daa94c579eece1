# SPDX-License-Identifier: Apache-2.0
"""What handlers of signals raise while a call is compiled gets to the caller."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit.deferred_signals import signals_deferred
from hostjit.lowering import lower

COMPILERS: dict[str, Callable[[Any], Any]] = {
    "compile": hostjit.compile,
    "backend": lambda function: torch.compile(function, backend="hostjit"),
}


class TimeIsUpError(Exception):
    """Raised by the handler."""


@pytest.fixture(autouse=True)
def _handled() -> Iterator[None]:
    def handle(*_: Any) -> None:
        raise TimeIsUpError

    torch.compiler.reset()
    before = signal.signal(signal.SIGUSR1, handle)
    yield
    signal.signal(signal.SIGUSR1, before)


def test_imports_are_not_interrupted() -> None:
    reached = []

    def interrupted() -> None:
        with signals_deferred():
            signal.raise_signal(signal.SIGUSR1)
            reached.append("the end")

    with pytest.raises(TimeIsUpError):
        interrupted()
    assert reached == ["the end"]
    with pytest.raises(TimeIsUpError):
        signal.raise_signal(signal.SIGUSR1)


def whole(x: Tensor) -> Tensor:
    return (x * 2).sin()


def in_parts(x: Tensor) -> Tensor:
    y = (x * 2).sin()
    print(end="")
    return y.cos() + 1


@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
@pytest.mark.parametrize("at", ["operators are followed", "programs are made"])
@pytest.mark.parametrize("way", list(COMPILERS))
@pytest.mark.parametrize("function", [whole, in_parts])
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_timeout(
    function: Any, needs_gradient: bool, way: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where something else is raised for it; a call later on is answered."""
    x = torch.randn(4, requires_grad=needs_gradient)
    fast = COMPILERS[way](lambda y: function(y))
    owner, name = (torch.Tensor, "sin") if at == "operators are followed" else (lower, "_lowered")
    original = getattr(owner, name)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return original(*args, **kwargs)

    with monkeypatch.context() as patch:
        if owner is torch.Tensor:
            patch.setattr(torch._subclasses.FakeTensor, name, interrupted, raising=False)
        else:
            patch.setattr(owner, name, interrupted)
        with pytest.raises(TimeIsUpError):
            fast(x)
    for _ in range(3):
        assert_close(fast(x), function(x))
