# SPDX-License-Identifier: Apache-2.0
"""Why a program serves one combination of sizes, where others were to be served too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from no_warnings import no_warnings

import hostjit


def with_its_length(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    return x.relu(), f"{x.shape[0]} rows"


def detached_and_more(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.detach(), x.exp()


@pytest.mark.parametrize("grad", [False, True])
def test_reasons_are_kept(grad: bool) -> None:
    compiled = hostjit.compile(with_its_length)
    assert compiled.static_reasons() == []
    with no_warnings():
        for n in (3, 4, 5):
            assert compiled(torch.randn(n, 2, requires_grad=grad))[1] == f"{n} rows"
    (reason,) = compiled.static_reasons()
    assert "a string is made of a number" in reason


def test_a_reason_of_the_backward_pass() -> None:
    compiled = hostjit.compile(detached_and_more)
    for n in (3, 4, 5):
        x = torch.randn(n, 2, requires_grad=True)
        compiled(x)[1].sum().backward()
        torch.testing.assert_close(x.grad, x.exp())
    assert compiled.static_reasons() == ["gradients are wanted, and a result is a view of an input"]
    with torch.no_grad():
        for n in (3, 4, 5):
            compiled(torch.randn(n, 2))
    assert len(compiled.static_reasons()) == 1


@pytest.mark.parametrize(
    "arguments", [{"dynamic": True}, {"dynamic_shapes": [{0: torch.export.Dim.DYNAMIC}]}]
)
def test_who_asks_for_open_dims_is_warned(arguments: dict[str, Any]) -> None:
    compiled = hostjit.compile(with_its_length, **arguments)
    with pytest.warns(UserWarning, match=r"is compiled for each combination of sizes: a string"):
        compiled(torch.randn(3, 2))
    with no_warnings():
        compiled(torch.randn(4, 2))


def test_a_mark_that_cannot_be_followed_is_warned_of() -> None:
    compiled = hostjit.compile(with_its_length)
    x = torch.randn(3, 2)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    with pytest.warns(UserWarning, match="is compiled for each combination of sizes"):
        compiled(x)


def test_the_warning_of_the_limit_says_why() -> None:
    compiled = hostjit.compile(with_its_length)
    with hostjit.knobs(enable="recompile_limit(2)"):
        compiled(torch.randn(3))
        compiled(torch.randn(4))
        with pytest.warns(UserWarning, match="no program for all sizes because a string is"):
            compiled(torch.randn(5))


class Decaying:
    rate = 1.0

    def __call__(self, x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * self.rate * factor


VARYING: dict[str, Callable[[Decaying, int], tuple[torch.Tensor, float]]] = {
    "Pad the inputs to fewer shapes": lambda decaying, n: (torch.ones(n + 2), 1.0),
    r"Numbers differ \(args\[1\]\): pass them as tensors": lambda decaying, n: (
        torch.ones(2),
        n + 0.5,
    ),
    "Python values that it reads": lambda decaying, n: (
        setattr(decaying, "rate", n + 0.5),
        (torch.ones(2), 1.0),
    )[1],
}


@pytest.mark.parametrize("advice", VARYING)
def test_the_warning_of_the_limit_blames_what_differs(advice: str) -> None:
    decaying = Decaying()
    compiled = hostjit.compile(decaying, dynamic=False)
    with hostjit.knobs(enable="recompile_limit(2)"):
        for n in range(2):
            compiled(*VARYING[advice](decaying, n))
        with pytest.warns(UserWarning, match=advice):
            compiled(*VARYING[advice](decaying, 2))


def test_a_position_in_a_tensor_is_named_with_its_line() -> None:
    cache = torch.zeros(2, 8)

    def write(x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        position = scores.softmax(0).argmax()
        cache[:, position] = x
        return cache[:, position]  # a view

    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hostjit.compile(write)(torch.ones(2), torch.eye(8)[3])
    said = [str(warning.message) for warning in caught]
    text = said[-1]
    assert "runs in parts" in text and "gradient" not in text
    assert f"at {__file__}:" in text
    assert cache[:, 3].tolist() == [1, 1]


def test_reasons_are_dumped(tmp_path: Path) -> None:
    compiled = hostjit.compile(with_its_length)
    with hostjit.knobs(dump="shapes", dump_directory=str(tmp_path)):
        for n in (3, 4, 5):
            compiled(torch.randn(n))
    (path,) = tmp_path.iterdir()
    assert path.name.endswith("_with_its_length_one_shape.txt")
    assert path.read_text().startswith("a string is made of a number")


def test_reasons_of_graphs_are_dumped(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x, number: x * (number & 7), backend="hostjit")
    with torch.no_grad(), hostjit.knobs(dump="shapes", dump_directory=str(tmp_path)):
        for number in (3, 4, 5):
            torch.testing.assert_close(
                compiled(torch.ones(2), number), torch.full((2,), float(number))
            )
    (path,) = tmp_path.iterdir()
    assert "has no form in Host IR" in path.read_text()
