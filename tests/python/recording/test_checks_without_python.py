# SPDX-License-Identifier: Apache-2.0
"""What is asked of each call about tensors is compared by the call path: no Python code runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import hostjit

randn = torch.randn
WEIGHT = randn(4, requires_grad=True)


def of_attributes(x: torch.Tensor) -> torch.Tensor:
    return x * getattr(x, "scale", 2.0)


def of_gradients(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.grad is None else x + x.grad


def of_hooks(x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad((x * x).sum(), x)[0]


def of_values(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if (x > 0).all() else x - 1


def of_kept_values(x: torch.Tensor) -> torch.Tensor:
    return x * float(WEIGHT.sum())


def of_values_of_gradients(x: torch.Tensor) -> torch.Tensor:
    assert WEIGHT.grad is not None
    return x * 2 if WEIGHT.grad[0] > 0 else x - 1


def _code_run(function: Callable[..., Any], *args: Any) -> list[str]:
    """Return the Python functions that a call runs."""
    seen: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return seen


def _mark(x: torch.Tensor) -> None:
    x.scale = 3.0  # type: ignore[attr-defined]


def _unmark(x: torch.Tensor) -> None:
    x.scale = 3.0  # type: ignore[attr-defined]
    del x.scale  # type: ignore[attr-defined]


def _give_gradient(x: torch.Tensor) -> None:
    x.grad = torch.ones_like(x)


def _drop_gradient(x: torch.Tensor) -> None:
    x.grad = None


def _hook(x: torch.Tensor) -> None:
    x.register_hook(lambda gradient: gradient * 3)


def _hook_for_a_while(x: torch.Tensor) -> None:
    x.register_hook(lambda gradient: gradient * 3).remove()


def _turn_around(x: torch.Tensor) -> None:
    x.data.neg_()


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize(
    ("function", "change", "keep"),
    [
        (of_attributes, _mark, _unmark),
        (of_gradients, _give_gradient, _drop_gradient),
        (of_hooks, _hook, _hook_for_a_while),
        (of_values, _turn_around, _drop_gradient),
        (of_kept_values, lambda x: WEIGHT.data.neg_(), _drop_gradient),
        (of_values_of_gradients, lambda x: WEIGHT.grad.neg_(), _drop_gradient),  # type: ignore[union-attr]
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_tensors_are_compared_without_python(
    function: Callable[..., Any],
    change: Callable[[torch.Tensor], None],
    keep: Callable[[torch.Tensor], None],
    runtime: str,
) -> None:
    torch.manual_seed(0)
    WEIGHT.grad = torch.ones(4)
    captured = hostjit.capture(function, runtime=runtime)
    x = (randn(4).abs() + 1).requires_grad_()
    for _ in range(3):
        assert_close(captured(x), function(x))
    assert captured.captured is not None
    keep(x)
    assert _code_run(captured, x) == []
    assert_close(captured(x), function(x))
    change(x)
    assert _code_run(captured, x) != []
    assert_close(captured(x), function(x))


def test_values_that_cannot_be_computed_any_more() -> None:
    table = randn(4)

    def function(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return x * 2 if table[place] > -100 else x - 1

    captured = hostjit.capture(function)
    x = randn(4)
    for place in (1, 2, 3, 0):
        assert_close(captured(x, torch.tensor(place)), x * 2)
    assert captured.captured is not None
    with pytest.raises(IndexError, match="out of bounds"):
        captured(x, torch.tensor(4))
    assert_close(captured(x, torch.tensor(1)), x * 2)


@pytest.mark.parametrize(
    ("checks", "message"),
    [
        ([("unknown", 0)], "unknown leaf check 'unknown'"),
        ([("unmarked", 1)], "checked leaf 1 is out of range"),
    ],
)
def test_checks_of_leaves_have_to_fit(checks: list[tuple[str, int]], message: str) -> None:
    with pytest.raises(hostjit.Error, match=message):
        hostjit._C.Specialization(
            args=(randn(2),),
            kwargs={},
            program=None,
            bindings=[],
            output=("argument", 0),
            route=print,
            leaf_checks=checks,
        )


def test_a_bound_dim_beside_an_equal_int() -> None:
    length = hostjit.Dim("length", 0, 9)
    for compile in (hostjit.capture, hostjit.compile):
        fast = compile(lambda x, n: x * n if n < 5 else x + n)
        for n in (3, 7):
            for _ in range(3):
                fast(torch.ones(3), n)
        x = randn(3)
        for n in (3, 7):
            assert _code_run(fast, x, length(n)) == _code_run(fast, x, n) == []
        for n in (3, 7, 4, 8):
            assert_close(fast(x, length(n)), x * n if n < 5 else x + n)


def test_a_method_that_is_kept() -> None:
    class Scaled:
        def __init__(self) -> None:
            self.weight = randn(3)

        @hostjit.capture
        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    one, x = Scaled(), randn(3)
    for _ in range(3):
        one.scale(x)
    assert _code_run(one.scale, x) == []
