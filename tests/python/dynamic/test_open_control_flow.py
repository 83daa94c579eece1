# SPDX-License-Identifier: Apache-2.0
"""Operators that control the flow, at any size: one program, whose regions have open sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import many_calls
import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import hostjit

SIZES = [(4, 6), (5, 7), (7, 7), (13, 4), (6, 31), (3, 5), (3, 3), (40, 3), (9, 8), (8, 9)]
FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {}


def example(function: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    FUNCTIONS[function.__name__] = function
    return function


def choose(x: Tensor, yes: Callable[..., Any], no: Callable[..., Any], *more: Tensor) -> Any:
    return torch.cond(x.sum() > 0, yes, no, (x, *more))


@example
def cond(x: Tensor) -> Tensor:
    return choose(x, lambda x: x.sin(), lambda x: x.softmax(1)) + 1


@example
def cond_of_several(x: Tensor) -> Any:
    def yes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x @ y.t(), y.sum(0)

    return choose(x, yes, lambda x, y: (x @ x.t() - 1, x.amax(0)), x * 2)


@example
def cond_with_sizes_as_numbers(x: Tensor) -> Tensor:
    rows, half = x.shape[0], x.shape[1] // 2
    return choose(x, lambda x: x * x.shape[1] + rows, lambda x: x / rows - half * x.shape[1] / 2)


@example
def cond_with_slices(x: Tensor) -> Tensor:
    def no(x: Tensor) -> Tensor:
        return x[: x.shape[0] - 1] + x.new_ones(x.shape[1])

    return choose(x, lambda x: x[: x.shape[0] - 1].t().t() * 2, no)


@example
def cond_with_other_sizes(x: Tensor) -> Tensor:
    def yes(x: Tensor) -> Tensor:
        return torch.cat([x, x * 2]).reshape(-1)

    return choose(
        x, yes, lambda x: torch.stack([x, x.cos()]).view(-1) + torch.arange(2 * x.numel())
    )


@example
def cond_in_cond(x: Tensor) -> Tensor:
    def yes(x: Tensor) -> Tensor:
        return choose(x - 1, lambda x: x * 2, lambda x: x * x.shape[0])

    return choose(x, yes, lambda x: x.cumsum(0))


@example
def cond_that_writes(x: Tensor) -> Tensor:
    y = x * 2

    def yes(y: Tensor) -> Tensor:
        y[1:].add_(y.shape[0])
        return y.sin()

    return choose(y, yes, lambda y: y.clone()) + y


if torch.__version__ < (2, 12):  # torch.cond refuses branches that write, in eager mode too
    del FUNCTIONS[cond_that_writes.__name__]


@example
def while_with_state(x: Tensor) -> Any:
    return while_loop(lambda x: x.abs().sum() > x.shape[0], lambda x: (x / 2,), (x,))


@example
def while_of_a_size(x: Tensor) -> Any:
    def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, (x - x.roll(1, 0)).softmax(1) / x.shape[1]

    return while_loop(lambda i, x: i < x.shape[0], step, (torch.tensor(0), x))


@example
def while_with_outside(x: Tensor) -> Any:
    rows, sums = x.shape[0], x.sum(1, keepdim=True)
    return while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x / rows + sums), (torch.tensor(0), x)
    )


@example
def map_of_rows(x: Tensor) -> Tensor:
    rows = x.shape[0]
    return map_rows(lambda row, x: row.softmax(0) @ x.t() + rows, x, x + 1)


@example
def map_of_rows_with_conds(x: Tensor) -> Tensor:
    return map_rows(lambda row: choose(row, lambda r: r * r.shape[0], lambda r: r - 1), x)


@example
def scan_of_rows(x: Tensor) -> Any:
    rows = x.shape[0]
    return scan(lambda c, row: (c.sin() + row / rows, (c * row)[1:]), x[0] * 0, x)


@example
def scan_of_columns_reversed(x: Tensor) -> Any:
    return scan(lambda c, r: (c / 2 + r, c.amax() * r), x[:, 0] * 0, x, dim=1, reverse=True)


@example
def while_in_scan_in_cond(x: Tensor) -> Any:
    def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        _, twice = while_loop(
            lambda i, c: i < 2, lambda i, c: (i + 1, c * 2), (torch.tensor(0), carry)
        )
        return twice.tanh() + row, twice * row.shape[0]

    return choose(x, lambda x: scan(step, x[0] * 0, x), lambda x: (x.sum(0), x + 1))


def calls() -> list[tuple[Tensor]]:
    return [(torch.randn(n, m) + sign,) for n, m in SIZES for sign in (1, -1)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_size(name: str, runtime: str) -> None:
    many_calls.check(FUNCTIONS[name], calls(), programs=1, dynamic=True, runtime=runtime)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_second_size_makes_the_last_program(name: str) -> None:
    many_calls.check(FUNCTIONS[name], calls(), programs=2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_size_through_torch_compile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    original = hostjit._C.CompiledProgram

    def record(program: hostjit._C.Program) -> hostjit._C.CompiledProgram:
        made.append(program)
        return original(program)

    monkeypatch.setattr(hostjit._C, "CompiledProgram", record)
    torch.compiler.reset()
    options = {"fallback": False}
    function = FUNCTIONS[name]
    compiled = torch.compile(function, backend="hostjit", dynamic=True, options=options)
    for call in calls():
        torch.testing.assert_close(compiled(*call), function(*call), check_stride=True)
    assert len(made) == 1


def test_named_and_marked_dims(runtime: str) -> None:
    def function(x: Tensor) -> Any:
        return scan(lambda c, row: (c + row, c * 2), torch.zeros(4), x)

    sizes = {"x": {0: hostjit.Dim("rows")}}
    rows = [(torch.randn(n, 4),) for n in (3, 8, 2, 17)]
    many_calls.check(function, rows, programs=1, dynamic_shapes=sizes, runtime=runtime)
    for (x,) in rows:
        torch._dynamo.mark_dynamic(x, 0)
    many_calls.check(function, rows, programs=1, runtime=runtime)


def test_no_rows_and_one(runtime: str) -> None:
    def function(x: Tensor) -> Tensor:
        return choose(x, lambda x: x.exp() * x.shape[0], lambda x: x - 1)

    rows = [(torch.randn(n, 4).abs(),) for n in (3, 5, 0, 1, 6)]
    many_calls.check(function, rows, programs=3, dynamic=True, runtime=runtime)


def test_ints_of_the_call(runtime: str) -> None:
    def function(x: Tensor, count: int) -> Tensor:
        return choose(x, lambda x: x * 3 + count, lambda x: x - x[:, :count].sum(1, keepdim=True))

    both = [(torch.randn(n, 20) + (-1) ** n, n - 1) for n in (3, 4, 7, 2, 18, 5, 6)]
    many_calls.check(function, both, programs=2, runtime=runtime)


@pytest.mark.filterwarnings("ignore:hostjit. .* hostjit.compile answers all calls")
def test_a_dim_of_a_captured_function(runtime: str) -> None:
    def function(x: Tensor, n: int) -> Any:
        rest = while_loop(
            lambda i, x: i < 3,
            lambda i, x: (i + 1, x / 2 + x[:, :n].amax(1, keepdim=True)),
            (torch.tensor(0), x),
        )
        return scan(lambda c, row: (c + row, c * n), x[0] * 0, rest[1][:n])

    captured, length = hostjit.capture(function, runtime=runtime), hostjit.Dim("length", 2, 30)
    for n in (3, 4, 7, 2, 20, 11, 13, 14, 15, 16):
        x = torch.randn(30, 40)
        torch.testing.assert_close(captured(x, length(n)), function(x, n))
    assert len(captured.specializations) == 1


@pytest.mark.parametrize(
    "name", [name for name in FUNCTIONS if "while" not in name and "writes" not in name]
)
def test_gradients_at_any_size(name: str) -> None:
    function = FUNCTIONS[name]
    compiled = hostjit.compile(function, dynamic=True, fallback=False)
    with torch.enable_grad():
        for (value,) in calls()[:6]:
            x = value.requires_grad_()
            found = []
            for call in (compiled, function):
                leaves = torch.utils._pytree.tree_leaves(call(x))
                found.append(torch.autograd.grad(sum(leaf.square().sum() for leaf in leaves), x))
            torch.testing.assert_close(*found)
    assert len(compiled.specializations) == 1


OF_FLOATS: dict[str, Callable[[Tensor, float], Any]] = {}


def of_a_float(function: Callable[[Tensor, float], Any]) -> Callable[[Tensor, float], Any]:
    OF_FLOATS[function.__name__] = function
    return function


@of_a_float
def cond_reads_a_float(x: Tensor, dt: float) -> Tensor:
    return choose(x, lambda x: x * dt + 1, lambda x: x + dt / 2)


@of_a_float
def cond_reads_what_follows(x: Tensor, dt: float) -> Tensor:
    rows, half = x.shape[0], dt / 2

    def yes(x: Tensor) -> Tensor:
        return choose(x - rows, lambda x: x * (half + 1), lambda x: torch.where(x > dt, x, half))

    return choose(x, yes, lambda x: (x * half).clamp(max=dt) ** 2 - rows * dt)


@of_a_float
def scan_reads_a_float(x: Tensor, dt: float) -> Any:
    return scan(lambda c, row: (c + row * dt, c * 2 - dt), x[0] * 0, x)


@of_a_float
def while_reads_a_float(x: Tensor, dt: float) -> Any:
    def step(t: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return t + dt, x - x * dt

    return while_loop(lambda t, x: t < 3 * dt, step, (torch.tensor(0.0), x))


@of_a_float
def chooses_by_a_float_in_rows(x: Tensor, dt: float) -> Tensor:
    return map_rows(
        lambda row: choose(row, lambda r: r * dt, lambda r: r.sin() + (dt - 1) * r.shape[0]), x
    )


@pytest.fixture
def eager_of_each_value() -> Iterator[None]:
    """Let eager compile each value: it raises where nested regions read a float that varies.

    With torch 2.15 it raises for other regions as well.
    """
    torch.compiler.reset()
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", OF_FLOATS)
@pytest.mark.usefixtures("eager_of_each_value")
def test_floats_of_the_call(name: str, dtype: torch.dtype, runtime: str) -> None:
    floats = [(x.to(dtype), dt) for dt in (0.1, 0.37, -2.0, 1e-3, 41.5) for (x,) in calls()[:2]]
    many_calls.check(OF_FLOATS[name], floats, programs=2, runtime=runtime)


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
@pytest.mark.usefixtures("eager_of_each_value")
def test_floats_make_floats_of_other_types(dtype: torch.dtype, runtime: str) -> None:
    both = [((torch.arange(6) - n).to(dtype), n + 0.3) for n in (0, 9, 2, 7, 3)]
    many_calls.check(cond_reads_a_float, both, programs=2, runtime=runtime)


def divides(x: Tensor, dt: float) -> Tensor:
    return choose(x, lambda x: x * (1 / dt), lambda x: x.sin())


def divides_rows(x: Tensor, dt: float) -> Tensor:
    return map_rows(lambda row: row * (1 / dt), x)


@pytest.mark.parametrize("function", [divides, divides_rows, cond_reads_a_float])
@pytest.mark.parametrize("odd", [0.0, 1e300])
@pytest.mark.usefixtures("eager_of_each_value")
@pytest.mark.filterwarnings("ignore:hostjit. .* runs (eagerly|in parts)")
def test_floats_for_which_eager_raises(
    function: Callable[..., Tensor], odd: float, runtime: str
) -> None:
    compiled = hostjit.compile(function, runtime=runtime)
    for dt in (0.1, 0.2, odd, 0.5, -1.0, odd):
        outcomes: list[Any] = []
        for call in (compiled, function):
            try:
                outcomes.append(call(torch.ones(3), dt))
            except Exception as error:
                outcomes.append(type(error).__name__)
        found, expected = outcomes
        if isinstance(expected, Tensor):
            torch.testing.assert_close(found, expected)
        else:
            assert found == expected


@pytest.mark.usefixtures("eager_of_each_value")
def test_either_side_of_a_float_in_a_branch(runtime: str) -> None:
    def function(x: Tensor, dt: float) -> Tensor:
        def yes(x: Tensor) -> Tensor:
            return torch.cond(dt > 0.5, lambda x: x * dt, lambda x: x - dt, (x,))

        return choose(x, yes, lambda x: x * 2)

    both = [(torch.ones(3) * sign, dt) for dt in (0.1, 0.2, 0.7, 0.3, 0.9) for sign in (1, -1)]
    many_calls.check(function, both, programs=3, runtime=runtime)


@pytest.mark.usefixtures("eager_of_each_value")
def test_floats_where_gradients_flow_elsewhere() -> None:
    def function(x: Tensor, dt: float, w: Tensor) -> Tensor:
        return choose(x, lambda x: x * dt, lambda x: x - dt) * w

    compiled = hostjit.compile(function, fallback=False)
    with torch.enable_grad():
        for dt in (0.1, 0.2, 0.3, 0.4):
            x, w = torch.randn(3), torch.randn(3, requires_grad=True)
            found = [call(x, dt, w) for call in (compiled, function)]
            torch.testing.assert_close(*found)
            torch.testing.assert_close(*(torch.autograd.grad(f.sum(), w) for f in found))
    assert len(compiled.specializations) == 2


@pytest.mark.usefixtures("eager_of_each_value")
def test_floats_where_gradients_flow_through_the_region() -> None:
    compiled = hostjit.compile(cond_reads_a_float, fallback=False)
    with torch.enable_grad():
        for dt in (0.1, 0.2, 0.3, 0.4):
            x = torch.randn(3, requires_grad=True)
            found = [call(x, dt) for call in (compiled, cond_reads_a_float)]
            torch.testing.assert_close(*found)
            torch.testing.assert_close(*(torch.autograd.grad(f.sum(), x) for f in found))


@pytest.mark.filterwarnings("ignore:hostjit. .* runs (eagerly|in parts)")
def test_a_loop_can_not_carry_a_float() -> None:
    def function(x: Tensor, dt: float) -> Any:
        return while_loop(lambda t, x: t < 1, lambda t, x: (t + dt, x * 2), (dt, x))

    compiled = hostjit.compile(function)
    for dt in (0.1, 0.2, 0.3):
        for call in (compiled, function):
            with pytest.raises(AssertionError, match="can only be of"):
                call(torch.ones(3), dt)
