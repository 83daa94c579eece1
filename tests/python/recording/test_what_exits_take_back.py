# SPDX-License-Identifier: Apache-2.0
"""Passes that others do not run, behind a test by which they leave a loop, leave nothing behind."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from calls_that_leave import kinds_of, rows
from torch import Tensor

import hostjit

Pair = collections.namedtuple("Pair", "first second")


class Kept:
    """Was there before the calls."""

    def __init__(self) -> None:
        self.weight = torch.linspace(0.5, 1.0, 4).requires_grad_(True)
        self.other = torch.linspace(1.0, 0.5, 4).requires_grad_(True)
        self.generator = torch.Generator().manual_seed(3)
        self.ended: list[Any] = []
        self.function: Any = None

    def state(self) -> list[Any]:
        found = [self.weight.grad, self.other.grad, self.generator.get_state(), self.ended]
        return [*found, getattr(self.function, "best", None)]


def a_list_in_a_tuple(kept: Kept, x: Tensor) -> Any:
    pair: tuple[Tensor, list[int]] = (x, [])
    for i in range(4):
        y, log = pair
        log.append(i)
        pair = (y * 0.8, log)
        if pair[0].norm() < 4:
            break
    return pair[0], len(pair[1])


def methods_of_a_list(kept: Kept, x: Tensor) -> Any:
    stack = [7]
    push, pop = stack.append, stack.pop
    for i in range(4):
        x = x * 0.8
        push(i)
        if x.norm() < 4:
            break
    return x, pop()


def a_class(kept: Kept, x: Tensor) -> Any:
    class Best:
        count = 0

    for _ in range(4):
        x = x * 0.8
        if x.norm() < 4:
            break
        Best.count += 1
    return x, Best.count


def an_attribute_of_a_function(kept: Kept, x: Tensor) -> Any:
    kept.function = function = lambda: 1
    for i in range(4):
        x = x * 0.8
        function.best = i
        if x.norm() < 4:
            break
    return x * 1


def a_default_by_keyword(kept: Kept, x: Tensor) -> Any:
    def note(*, log: list[Any] = []) -> int:  # noqa: B006
        log.append(1)
        return len(log)

    for _ in range(4):
        x = x * 0.8
        note()
        if x.norm() < 4:
            break
    return x, note()


def an_attribute_of_a_tensor(kept: Kept, x: Tensor) -> Any:
    y: Any = x + 1
    for _ in range(4):
        x = x * 0.8
        y.best = x * 3
        if x.norm() < 4:
            break
    return y.best * 1


def hooks(kept: Kept, x: Tensor) -> Any:
    w = x.clone().requires_grad_(True)
    for _ in range(4):
        x = x * 0.8
        w.register_hook(lambda gradient: gradient * 2)
        if x.norm() < 4:
            break
    (w * x).sum().backward()
    return w.grad * 1


def a_gradient_behind_a_default(kept: Kept, x: Tensor) -> Any:
    w = x.clone().requires_grad_(True)
    get = lambda w=w: w.grad  # noqa: E731
    for _ in range(4):
        w.grad = None
        x = x * 0.8
        (w * x).sum().backward()
        if x.norm() < 4:
            break
    return get() * 1


def a_gradient_of_a_later_pass(kept: Kept, x: Tensor) -> Any:
    for i in range(4):
        x = x * 0.8
        if x.norm() < 4:
            break
        if i >= 2:
            (kept.other * x).sum().backward()
    return x * 1


def an_argument_as_a_gradient(kept: Kept, x: Tensor) -> Any:
    w = x.clone().requires_grad_(True)
    w.grad = torch.zeros(4)
    y = x * 1
    for i in range(4):
        y = y * 0.8
        if y.norm() < 4:
            break
        if i == 2:
            w.grad = x
    return w.grad + 1


def the_same_gradient(kept: Kept, x: Tensor) -> Any:
    for _ in range(4):
        x = x * 0.8
        if x.norm() < 4:
            break
        kept.weight.grad = None
        (kept.weight * x).sum().backward()
    return x * 1


def seeds(kept: Kept, x: Tensor) -> Any:
    for i in range(4):
        x = x * 0.8
        kept.generator.manual_seed(i)
        if x.norm() < 4:
            break
    return x + torch.rand(4, generator=kept.generator)


@contextlib.contextmanager
def _ending(kept: Kept) -> Iterator[list[Any]]:
    found: list[Any] = []
    yield found
    kept.ended = found


def a_context(kept: Kept, x: Tensor) -> Any:
    with _ending(kept) as found:
        for i in range(4):
            x = x * 0.8
            found.append(i)
            if x.norm() < 4:
                break
    return x * 1


def a_list_that_is_gone_through(kept: Kept, x: Tensor) -> Any:
    items, count = [1.0, 0.9], 0
    for item in items:
        for _ in range(2):
            x = x * 0.9 * item
            if x.norm() < 4:
                break
            if len(items) < 5:
                items.append(0.8)
        count += 1
    return x, count


def a_graph(kept: Kept, x: Tensor) -> Any:
    y = kept.weight * kept.weight * x
    for i in range(4):
        x = x * 0.8
        if x.norm() < 4:
            break
        if i == 2:
            torch.autograd.grad(y.sum(), kept.weight)
            return y.detach()
    return y


def a_named_tuple(kept: Kept, x: Tensor) -> Any:
    y = x * 0.5
    if x.sum() > 3:
        y = x * 2
    for _ in range(3):
        y = y * 0.8
        if y.norm() < 4:
            break
    return Pair(y, 1)


class _Log:
    current: Any = None


def _begun() -> list[int]:
    _Log.current = []
    return _Log.current


def _logged(x: Tensor) -> Tensor:
    log, _Log.current = _Log.current, None
    for i in range(4):
        x = x * 0.8
        if x.norm() < 4:
            break
        log.append(i)
    return x


def a_list_on_the_stack(kept: Kept, x: Tensor) -> Any:
    return len(_begun() + [0] * int(_logged(x).numel() > 9)), x * 1


def a_list_beside_a_call(kept: Kept, x: Tensor) -> Any:
    found = (_begun(), _logged(x))
    return len(found[0]), found[1]


PROGRAMS = [
    *(a_list_on_the_stack, a_list_beside_a_call),
    *(a_list_in_a_tuple, methods_of_a_list, a_class, an_attribute_of_a_function),
    *(a_default_by_keyword, an_attribute_of_a_tensor, hooks, a_gradient_behind_a_default),
    *(a_gradient_of_a_later_pass, an_argument_as_a_gradient, the_same_gradient, seeds),
    *(a_context, a_list_that_is_gone_through, a_graph, a_named_tuple),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_nothing_is_left(program: Callable[[Kept, Tensor], Any], runtime: Any) -> None:
    mine, eager = Kept(), Kept()
    recorded = hostjit.capture(program, runtime=runtime)
    for x in rows():
        given, expected_given = x.clone(), x.clone()
        before, expected_before = mine.weight.grad, eager.weight.grad
        expected, found = program(eager, expected_given), recorded(mine, given)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert kinds_of(found) == kinds_of(expected)
        torch.testing.assert_close(given, expected_given)
        torch.testing.assert_close(mine.state(), eager.state(), rtol=1e-5, atol=1e-5)
        is_same = eager.weight.grad is expected_before
        assert (mine.weight.grad is before) == is_same
        if isinstance(expected, Tensor):
            assert found.requires_grad == expected.requires_grad


@pytest.mark.filterwarnings("ignore:hostjit.*_set_float32_matmul_precision")
def test_a_setting_of_the_process_is_set_at_each_call() -> None:
    @hostjit.capture
    def program(x: Tensor) -> Tensor:
        torch.set_float32_matmul_precision("high")
        return x * 2

    precision = torch.get_float32_matmul_precision()
    try:
        for _ in range(4):
            torch.set_float32_matmul_precision("highest")
            program(torch.ones(2))
            assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(precision)


def test_the_recorded_call_returns_what_eager_returns() -> None:
    @hostjit.capture
    def program(x: Tensor) -> Any:
        y = x + 1
        if x.sum() > 0:
            y = x
        return Pair(y, 1)

    for _ in range(4):
        x = torch.ones(3)
        assert program(x).first is x
