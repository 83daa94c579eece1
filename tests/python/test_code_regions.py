# SPDX-License-Identifier: Apache-2.0
"""Loops that values of tensors decide on, of which each pass is a function."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit
from hostjit.bytecode.loops import PassVariables, lines_of_loops, with_compiled_passes
from hostjit.bytecode.making import function_of
from hostjit.capturing.errors import CaptureError, CaptureFailure

W = torch.linspace(-0.3, 0.3, 9).view(3, 3)
HEAD = nn.Linear(3, 2)


class StopError(Exception):
    """What loops stop with."""


def while_not_close(x: Tensor, most: int = 40) -> tuple[Tensor, int]:
    count = 0
    new = torch.tanh(x @ W + 0.5)
    while (new - x).abs().max().item() > 1e-3 and count < most:
        x, new = new, torch.tanh(new @ W + 0.5)
        count += 1
    return new.exp(), count


def returns_from_a_loop(x: Tensor) -> tuple[Tensor, Any]:
    y = x * 2
    for i in range(30):
        new = torch.tanh(y @ W)
        if torch.norm(new - y) < 1e-2:
            return new * 2, i
        y = new
    return HEAD(y).sum(), None


def returns_early(x: Tensor) -> Tensor:
    y = x.relu()
    if y.sum() < 1:
        return y - 1
    y = y + 1
    while y.sum() < 50:
        y = y * 1.7
    y = y.exp().log()
    if y.max() > 20:
        return y / 2
    return y.neg()


def never_ends_but_by_return(x: Tensor) -> tuple[Tensor, int]:
    passes = 0
    while True:
        step = (x**3 - 2 * x - 5) / (3 * x**2 - 2)
        x = x - step
        passes += 1
        if step.abs().max() < 1e-4 or passes >= 15:
            return x, passes


def goes_on(x: Tensor) -> list[float]:
    seen: list[float] = []
    i = 0
    while i < 8:
        i += 1
        y = (x * i).sin().sum()
        if y > 0:
            continue
        seen.append(y.item())
        if len(seen) > 3:
            break
    else:
        seen.append(100.0)
    return seen


def with_an_else(x: Tensor) -> str:
    for row in x:
        if row.sum() > 2.5:
            found = "large"
            break
        row = row * 2
    else:
        found = "none"
    return found


def of_two_loops(x: Tensor) -> tuple[Tensor, int, int]:
    first = second = 0
    while x.abs().max() < 3:
        x = x * 1.5
        first += 1
    x = x.cos() + x
    for _ in range(10):
        x = x / 2
        second += 1
        if x.abs().sum() < 1:
            break
    return x, first, second


def nested(x: Tensor) -> tuple[Tensor, int]:
    steps = 0
    for row in x:
        while row.norm() > 0.5:
            row = row * 0.8
            steps += 1
        x = x + row
    return x, steps


def within_no_grad(x: Tensor) -> tuple[Tensor, int]:
    count = 0
    with torch.no_grad():
        y = x.exp()
        while y.sum() > 2:
            y = y * 0.7
            count += 1
        y = y + count
    return y.sin(), count


def within_contexts(x: Tensor) -> tuple[Tensor, int]:
    start = x[torch.zeros(1, dtype=torch.long)]
    with torch.autocast("cpu", enabled=False), torch.no_grad() as mode:
        state = torch.zeros_like(start) if mode is None else start
        for used in range(30):  # noqa: B007
            now = torch.tanh(state @ W) + start
            if (now - state).norm() < 1e-2:
                break
            state = now
        return HEAD(state), used


def handles_errors(x: Tensor) -> tuple[float, int]:
    total, failed = 0.0, 0
    for row in x:
        try:
            if row.sum() > 1:
                raise StopError
            value = row.exp().sum().item()
        except StopError:
            failed += 1
            continue
        total += value
    return total, failed


def raises(x: Tensor) -> Tensor:
    count = 0
    while x.sum() < 10:
        x = x.abs() * 1.5
        count += 1
        if count > 12:
            raise StopError(f"{count}")
    return x


def within_a_try(x: Tensor) -> str:
    try:
        while x.sum() < 10:
            x = x * 1.5
            if x.max() > 2.5:
                raise StopError("large")
    except StopError as error:
        return str(error)
    finally:
        W.mul_(1)
    return "sum"


def of_tuples(x: Tensor) -> list[int]:
    path = []
    state = (x, x.sum())
    while len(path) < 6:
        h, c = state
        token = int(torch.tanh(h @ W + c).sum(0).argmax())
        path.append(token)
        if token == 2:
            break
        state = (h * 0.5 + token, c + 1)
    return path


def with_comprehensions(x: Tensor) -> Tensor:
    scale = float(x.shape[0])
    while x.sum() < 20:
        x = torch.stack([row * scale + i for i, row in enumerate(x)])
    return x


def with_comprehensions_ahead(x: Tensor) -> tuple[Tensor, list[float]]:
    """A comprehension has a variable of the loop's name, which has no value before and behind."""
    rows = [row * 2 for row in x]
    weights = {(a, b): a + b for a, b in [(1.0, 2.0), (3.0, 4.0)]}
    total = x.sum()
    seen = []
    for row in rows:
        b = row.sum()
        if total.item() > 1e9:
            break
        seen.append(b.item())
        total = total + b * len(weights)
    return total, seen


def with_functions(x: Tensor) -> Tensor:
    rate = 0.5

    def half(y: Tensor, shift: float = 0.1) -> Tensor:
        return y * rate + shift

    def change(y: Tensor) -> Tensor:
        return half(y) + x.sum()

    total = x
    while total.sum() < 20:
        total = total + change(total).abs() + rate
    return total


def writes_in_place(x: Tensor) -> Tensor:
    x = x.clone()
    view = x[0]
    while view.sum() < 5:
        view.add_(0.7)
        x.mul_(1.1)
    return x


def with_functions_that_see_later_values(x: Tensor) -> tuple[Tensor, list[int]]:
    def note(value: int) -> None:
        seen.append(value * factor)

    factor = 1
    while x.sum() < 4:
        x = x + 0.5
    factor = 3
    seen: list[int] = []
    for i in range(2):
        note(i)
        if x.max() > 100:
            break
    return x, seen


def with_lists_of_loops(x: Tensor) -> tuple[list[float], dict[int, float]]:
    large = [row.sum().item() for row in x if row.sum() > 0.5]
    while x.norm() > 1:
        x = x * 0.7
    return large, {i: row.norm().item() for i, row in enumerate(x)}


FOUND = (
    *(while_not_close, returns_from_a_loop, returns_early, never_ends_but_by_return, goes_on),
    *(with_an_else, of_two_loops, nested, within_no_grad, handles_errors, raises, of_tuples),
    with_comprehensions_ahead,
    *(with_comprehensions, with_functions, writes_in_place, within_contexts, with_lists_of_loops),
)


def hides_errors(x: Tensor) -> int:
    count = 0
    with contextlib.suppress(StopError):
        while True:
            x = x * 1.5
            count += 1
            if x.abs().sum() > 30:
                raise StopError
    return count


def reads_what_it_knew_in_a_handler(x: Tensor) -> int:
    count = 0
    try:
        while x.abs().sum() > 1:
            x = x / 1.5
            count += 1
            if count > 2:
                raise StopError
    except StopError:
        return count
    return -count


def keeps_functions_in_a_list(x: Tensor) -> list[int]:
    made = []
    for i in range(9):
        x = x * 1.5
        made.append(lambda: i)  # noqa: B023
    return [each() for each in made]


def keeps_a_function(x: Tensor) -> Tensor:
    count, kept = 0, None
    while x.abs().sum() < 30:
        x = x * 1.5 + 0.1
        count += 1

        def find() -> int:
            return count  # noqa: B023

        if count == 2:
            kept = find
    return x if kept is None else x * kept()


def keeps_a_generator(x: Tensor) -> list[int]:
    made = []
    for i in range(9):
        x = x * 1.5
        made.append(i + k for k in range(2))
    return [number for each in made for number in each]


REFUSED = (
    *(hides_errors, reads_what_it_knew_in_a_handler, keeps_functions_in_a_list, keeps_a_function),
    keeps_a_generator,
)
OTHERS = (within_a_try, with_functions_that_see_later_values)


def inputs() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3) + shift / 8 for shift in range(10)]


def outcome(function: Callable[..., Any], x: Tensor) -> Any:
    try:
        return function(x.clone())
    except (StopError, UnboundLocalError) as error:
        return type(error), str(error)


def assert_same(found: Any, expected: Any, **tolerances: float) -> None:
    is_text = isinstance(expected, str) or (
        isinstance(expected, tuple) and expected[0] is StopError
    )
    if is_text:
        assert found == expected
    else:
        assert_close(found, expected, **tolerances)


def lines_of(function: types.FunctionType) -> set[int]:
    return {line for _, _, line in function.__code__.co_lines() if line is not None}


@pytest.mark.parametrize("function", FOUND)
def test_the_code_does_what_it_did(function: Any) -> None:
    calls: list[str] = []

    def compiled(kind: str) -> Callable[..., Any]:
        def compile_it(
            code: types.CodeType, variables: PassVariables | None = None
        ) -> Callable[..., Any]:
            part = function_of(function, code)
            part.__defaults__ = None

            def run(*args: Any) -> Any:
                calls.append(kind)
                if variables is not None and variables.counts:
                    args = (*args[:-1], 1, 0)
                return part(*args)

            return run

        return compile_it

    code = with_compiled_passes(
        function.__code__,
        function.__globals__,
        lines_of(function),
        compiled("pass"),
        compiled("part"),
    )
    assert code is not None
    made = function_of(function, code)
    with torch.no_grad():
        for x in inputs():
            assert_same(outcome(made, x), outcome(function, x))
    assert calls.count("pass") > 10


@pytest.mark.parametrize("function", REFUSED)
def test_code_that_stays_as_it_is(function: Any) -> None:
    assert not lines_of_loops(function.__code__)


def by_hostjit(function: Any) -> Any:
    return hostjit.compile(function)


def by_torch_compile(function: Any) -> Any:
    return torch.compile(function, backend="hostjit")


def below_hostjit(function: Any) -> Any:
    def call(x: Tensor) -> Any:
        return function(x + 0)

    return hostjit.compile(call)


def below_torch_compile(function: Any) -> Any:
    def call(x: Tensor) -> Any:
        return function(x + 0)

    return torch.compile(call, backend="hostjit")


COMPILERS = (by_hostjit, by_torch_compile, below_hostjit, below_torch_compile)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("function", [*FOUND, *REFUSED, *OTHERS])
def test_compiled(function: Any, compiler: Any, gradients: bool) -> None:
    fast = compiler(function)
    with torch.set_grad_enabled(gradients):
        for _ in range(3):
            for x in inputs():
                assert_same(outcome(fast, x), outcome(function, x), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("function", [while_not_close, returns_from_a_loop, nested, of_two_loops])
def test_gradients_through_passes(function: Any, compiler: Any) -> None:
    fast = compiler(function)
    for _ in range(2):
        for x in inputs():
            mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
            found, expected = fast(mine)[0], function(other)[0]
            assert_close(found, expected, rtol=1e-4, atol=1e-5)
            found.sum().backward()
            expected.sum().backward()
            assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-4)


class Solver(nn.Module):
    """Layers that are run until values settle, with what it did as attributes."""

    def __init__(self, count: int, norms: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(count)])
        self.head = nn.Linear(3, 2)
        self.norms: dict[int, float] = {}
        self.keeps_norms = norms
        self.calls = 0

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        self.calls += 1
        used = 0
        x = x * 2
        for i, layer in enumerate(self.layers):
            x = torch.relu(layer(x)) + x
            used += 1
            if self.keeps_norms:
                self.norms[i] = x.norm().item()
            if x.max().item() > 8:
                break
        return self.head(x), used


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("count", [3, 12])
@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("compiler", [by_hostjit, by_torch_compile])
def test_layers(compiler: Any, gradients: bool, norms: bool, count: int) -> None:
    mine, other = Solver(count, norms), Solver(count, norms)
    fast = compiler(mine)
    with torch.set_grad_enabled(gradients):
        for _ in range(3):
            for x in inputs():
                found, expected = fast(x), other(x)
                assert_close(found, expected, rtol=1e-4, atol=1e-5)
                assert_close(mine.norms, other.norms, rtol=1e-4, atol=1e-5)
                assert mine.calls == other.calls
                if gradients:
                    found[0].sum().backward()
                    expected[0].sum().backward()
                    for a, b in zip(mine.parameters(), other.parameters(), strict=True):
                        assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("compiler", COMPILERS)
def test_variables_of_a_function_around(compiler: Any) -> None:
    def made(scale: Tensor) -> Callable[[Tensor], tuple[Tensor, int]]:
        calls = 0

        def solve(x: Tensor) -> tuple[Tensor, int]:
            nonlocal calls
            while x.norm() > 1:
                x = x * scale
                calls += 1
            return x, calls

        return solve

    for factor in (0.8, 0.5):
        function, other = made(torch.tensor(factor)), made(torch.tensor(factor))
        fast = compiler(function)
        with torch.no_grad():
            for x in inputs():
                assert_close(fast(x), other(x), rtol=1e-4, atol=1e-5)


def test_lines_of_code_that_goes_on_behind_a_break() -> None:
    code = nested.__code__
    resumed = code.replace(co_name="torch_dynamo_resume_in_nested_at_7")
    stack = [
        (code.co_filename, "outer", 1),
        (code.co_filename, "nested", 5),
        ("other", "nested", 6),
    ]
    error = CaptureError(CaptureFailure.GRAPH_BREAK, "it stops", stack=stack)
    assert error.lines_in(code) == error.lines_in(resumed) == {5}
    assert not error.lines_in(code.replace(co_name="torch_dynamo_resume_in_outer"))


@pytest.mark.parametrize("name", ["textwrap", "difflib", "heapq", "shlex", "argparse"])
def test_pythons_own_library(name: str) -> None:
    tests = f"test.test_{name}"
    pytest.importorskip(tests, reason="Python has come without its tests")
    program = Path(__file__).with_name("outlined_library.py")
    command = [sys.executable, "-W", "ignore", str(program), name, tests]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr[-4000:]
