# SPDX-License-Identifier: Apache-2.0
"""Why a program serves one combination of sizes, where others were to be served too."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import hostjit


def with_its_length(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    return x.relu(), x.shape[0]


def a_view_and_more(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.t(), x.exp()


@pytest.mark.parametrize("grad", [False, True])
def test_reasons_are_kept(grad: bool) -> None:
    compiled = hostjit.compile(with_its_length)
    assert compiled.static_reasons() == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (3, 4, 5):
            assert compiled(torch.randn(n, 2, requires_grad=grad))[1] == n
    (reason,) = compiled.static_reasons()
    assert ("a result is no tensor" if grad else "a result is a number") in reason


def test_a_reason_of_the_backward_pass() -> None:
    compiled = hostjit.compile(a_view_and_more)
    for n in (3, 4, 5):
        x = torch.randn(n, 2, requires_grad=True)
        sum(result.sum() for result in compiled(x)).backward()
        torch.testing.assert_close(x.grad, 1 + x.exp())
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
    with pytest.warns(UserWarning, match=r"is compiled for each combination of sizes: a result"):
        compiled(torch.randn(3, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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
        with pytest.warns(UserWarning, match="no program for all sizes because a result is"):
            compiled(torch.randn(5))


def test_reasons_are_dumped(tmp_path: Path) -> None:
    compiled = hostjit.compile(with_its_length)
    with hostjit.knobs(dump="shapes", dump_directory=str(tmp_path)):
        for n in (3, 4, 5):
            compiled(torch.randn(n))
    (path,) = tmp_path.iterdir()
    assert path.name.endswith("_with_its_length_one_shape.txt")
    assert path.read_text().startswith("a result is a number")


def test_reasons_of_graphs_are_dumped(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x, number: x * number, backend="hostjit")
    with torch.no_grad(), hostjit.knobs(dump="shapes", dump_directory=str(tmp_path)):
        for number in (3, 4, 5):
            torch.testing.assert_close(
                compiled(torch.ones(2), number), torch.full((2,), float(number))
            )
    (path,) = tmp_path.iterdir()
    assert "is a number that may be negative" in path.read_text()
