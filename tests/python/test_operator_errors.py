# SPDX-License-Identifier: Apache-2.0
"""Errors that operators raise for some elements, where the code handles them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

POSITIVE, NEGATIVE, SINGULAR = torch.eye(3) + 0.1, -torch.eye(3), torch.zeros(3, 3)


def factor_with_jitter(x: Tensor) -> Tensor:
    y = x * 2
    try:
        factor = torch.linalg.cholesky(y)
    except RuntimeError:
        factor = torch.linalg.cholesky(y + 10 * torch.eye(3))
    return factor.sin() + 1


def factor(x: Tensor) -> Tensor:
    return torch.linalg.cholesky(x) + 1


def handled_by_the_caller(x: Tensor) -> Tensor:
    try:
        return factor(x)
    except torch.linalg.LinAlgError:
        return x * 3


class Inverse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        try:
            with torch.no_grad():
                return torch.linalg.inv(x) + 1
        except Exception as error:
            return x * len(str(error))


def item(x: Tensor) -> Tensor:
    try:
        return x[x.sum().long()] * 2
    except IndexError:
        return x * 3


def picked(x: Tensor) -> Tensor:
    try:
        return x.index_select(0, x.sum().long().reshape(1)) * 2
    except IndexError:
        return x * 3


def _made(filename: str, body: str, lines: int = 100) -> Callable[[Tensor], Tensor]:
    """A function whose body follows many lines, in a file of that name."""
    line = "    x = x if flags[{0}] is None else x + flags[{0}]\n"
    before = "".join(line.format(index) for index in range(lines))
    namespace = {"torch": torch, "flags": [None] * lines, "state": {"mode": 1}}
    exec(compile(f"def made(x):\n{before}{body}", filename, "exec"), namespace)
    function: Callable[[Tensor], Tensor] = namespace["made"]  # type: ignore[assignment]
    return function


HANDLED = """
    try:
        x = torch.linalg.cholesky(x)
    except RuntimeError:
        x = x * 3
    return x + 1
"""
PUT_BACK = """
    before = state["mode"]
    state["mode"] = 2
    try:
        x = torch.linalg.cholesky(x) * state["mode"]
    finally:
        if before is not None:
            state["mode"] = before
    return x + state["mode"]
"""
INSTALLED = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "made.py")


@pytest.mark.parametrize("filename", ["made.py", INSTALLED])
def test_handlers_behind_many_lines(filename: str) -> None:
    function = _made(filename, HANDLED)
    with pytest.raises(hostjit.CaptureError, match="cholesky raises for some elements"):
        hostjit.compile(function, fallback=False)(POSITIVE)
    fast = hostjit.compile(function)
    for x in (POSITIVE, POSITIVE * 2, NEGATIVE, POSITIVE):
        assert_close(fast(x), function(x))


def test_packages_that_put_back_what_they_have_changed() -> None:
    with pytest.raises(hostjit.CaptureError, match="cholesky raises for some elements"):
        hostjit.compile(_made("made.py", PUT_BACK), fallback=False)(POSITIVE)
    function = _made(INSTALLED, PUT_BACK)
    fast = hostjit.compile(function, fallback=False)
    for x in (POSITIVE, POSITIVE * 2, POSITIVE):
        assert_close(fast(x), function(x))
    for call in (fast, function):
        with pytest.raises(torch.linalg.LinAlgError):
            call(NEGATIVE)
        assert function.__globals__["state"] == {"mode": 1}
    assert_close(fast(POSITIVE), function(POSITIVE))


@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize(
    "function", [factor_with_jitter, handled_by_the_caller, Inverse(), picked, item]
)
def test_handlers_run_where_elements_make_an_operator_raise(
    make: Callable[..., Any], function: Callable[[Tensor], Tensor]
) -> None:
    fast = make(function)
    for x in (POSITIVE, POSITIVE, POSITIVE * 2, NEGATIVE, SINGULAR, POSITIVE, NEGATIVE):
        assert_close(fast(x), function(x))


def without_a_handler(x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.linalg.inv(x) + 1


def other_operators(x: Tensor) -> Tensor:
    try:
        x = x.exp()[:, :3] + 1
    except RuntimeError:
        x = x * 2
    return torch.linalg.inv(x)


@pytest.mark.parametrize("function", [without_a_handler, other_operators])
def test_programs_are_whole_where_nothing_is_handled(function: Callable[[Tensor], Tensor]) -> None:
    fast = hostjit.compile(function, fallback=False)
    for x in (POSITIVE, POSITIVE * 2):
        assert_close(fast(x), function(x))


def inverted_with_others(x: Tensor) -> Tensor:
    return torch.linalg.inv(x).sum() + torch.linalg.cholesky(x @ x.mT + torch.eye(3)).sum()


FACTORIZATIONS: dict[str, tuple[Callable[[Tensor], Any], Tensor]] = {
    "cholesky": (torch.linalg.cholesky, NEGATIVE),
    "inv": (torch.linalg.inv, SINGULAR),
    "lu": (lambda x: torch.linalg.lu_factor(x)[0], SINGULAR),
    "solve": (lambda x: torch.linalg.solve(x, torch.ones(3, 2)), SINGULAR),
    "two of them": (inverted_with_others, SINGULAR),
}


@pytest.mark.filterwarnings("error:hostjit")
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("name", FACTORIZATIONS)
def test_factorizations_with_gradients_are_checked(
    name: str, make: Callable[..., Any], runtime: str
) -> None:
    """Their checks have no results, and are in one program with them."""
    function, refused = FACTORIZATIONS[name]
    fast = make(function, runtime=runtime, fallback=False)
    for factor in (1, 1, 1, 2):
        inputs = [(factor * POSITIVE).requires_grad_() for _ in range(2)]
        found, expected = fast(inputs[0]), function(inputs[1])
        assert_close(found, expected)
        found.sum().backward()
        expected.sum().backward()
        assert_close(inputs[0].grad, inputs[1].grad)
    with pytest.raises(RuntimeError) as of_eager:
        function(refused.clone().requires_grad_())
    with pytest.raises(type(of_eager.value)) as raised:
        fast(refused.clone().requires_grad_())
    assert str(raised.value).startswith(str(of_eager.value))
    assert "aten::_linalg_check_errors" in fast.host_ir()
