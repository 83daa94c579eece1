# SPDX-License-Identifier: Apache-2.0
"""Higher-order operators that control the flow: cond, while_loop, map and scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import hostjit

RUNTIMES = ["jit", "evaluator"]


def check(function: Callable[..., Any], runtime: str, *calls: tuple[Tensor, ...]) -> Any:
    """Compare with eager on each call; return the compiled function."""
    compiled = hostjit.compile(function, runtime=runtime)
    with torch.no_grad():
        for args in calls:
            assert_close(compiled(*args), function(*args))
    return compiled


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_cond_takes_the_branch_of_each_call(runtime: str) -> None:
    def choose(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,)) + 1

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).abs()
    compiled = check(choose, runtime, (x,), (-x,), (x * 2,))
    assert "if(condition=" in compiled.host_ir()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_cond_with_several_results_constants_and_captured_tensors(runtime: str) -> None:
    weight = torch.arange(12.0).reshape(3, 4)

    def choose(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        def yes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x @ weight.t(), y + torch.tensor([1.0, 2.0, 3.0, 4.0])

        def no(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return (x * torch.tensor(2.0)) @ weight.t(), y.clone()

        return torch.cond(y.sum() > 0, yes, no, (x, y))

    x, y = torch.ones(2, 4), torch.ones(5, 4)
    check(choose, runtime, (x, y), (x, -y), (x * 3, y))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_cond_inside_cond(runtime: str) -> None:
    def choose(x: Tensor) -> Tensor:
        def outer(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 10, lambda x: x * 2, lambda x: x * 3, (x + 1,))

        return torch.cond(x.sum() > 0, outer, lambda x: x - 1, (x,))

    x = torch.ones(4)
    check(choose, runtime, (x,), (x * 5,), (-x,))


def adds_or_scales(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    between = x * 2

    def add(between: Tensor, y: Tensor) -> Tensor:
        between.add_(1)
        return between * y

    def scale(between: Tensor, y: Tensor) -> Tensor:
        y[0].mul_(3)
        return between + y

    result = torch.cond(x.sum() > 0, add, scale, (between, y))
    return result, between, y + 1


def returns_what_it_writes(x: Tensor, y: Tensor) -> Tensor:
    def inner(y: Tensor) -> Tensor:
        return torch.cond(y.sum() > 9, lambda y: y.sin_(), lambda y: y.mul_(2), (y,))

    result: Tensor = torch.cond(x.sum() > 0, inner, lambda y: y.clone(), (y.t(),))
    return result


branches_may_write = pytest.mark.skipif(
    torch.__version__ < (2, 12), reason="torch.cond refuses branches that write, in eager mode too"
)


@branches_may_write
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("function", [adds_or_scales, returns_what_it_writes])
def test_branches_may_change_what_they_are_given(
    function: Callable[..., Any], runtime: str
) -> None:
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    with torch.no_grad():
        for sign, factor in ((1, 1), (-1, 1), (1, 5)):
            x, ours = sign * torch.ones(2, 3), factor * torch.ones(2, 3)
            eager = ours.clone()
            assert_close(compiled(x, ours), function(x, eager))
            assert_close(ours, eager)


@branches_may_write
def test_branches_that_change_memory_of_two_operands_run_eagerly() -> None:
    def shift(row: Tensor, both: Tensor) -> Tensor:
        row.add_(1)
        return both * 2

    def choose(x: Tensor) -> Tensor:
        result: Tensor = torch.cond(x.sum() > 0, shift, lambda row, both: both * 3, (x[0], x))
        return result

    compiled = hostjit.compile(choose)
    x = torch.ones(2, 3)
    with torch.no_grad(), pytest.warns(UserWarning, match="memory that two of its operands share"):
        found = compiled(x.clone())
    with torch.no_grad():
        assert_close(found, choose(x))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.filterwarnings("error:hostjit. .* runs eagerly")
def test_cond_on_a_size(dynamic: bool | None, runtime: str) -> None:
    def choose(x: Tensor) -> Tensor:
        def many(x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 4, (x,))

        result: Tensor = torch.cond(x.shape[0] > 3, many, lambda x: x * 3, (x,))
        return result

    torch.compiler.reset()
    options = {"runtime": runtime}
    compiled = torch.compile(choose, backend="hostjit", dynamic=dynamic, options=options)
    for size, sign in ((3, 1), (5, 1), (6, -1), (2, 1), (7, 1)):
        x = sign * torch.ones(size)
        assert_close(compiled(x), choose(x))


@torch.compiler.nested_compile_region  # type: ignore[untyped-decorator]
def region(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 4, (x,))


def choices_in_regions(x: Tensor) -> Tensor:
    return region(region(x) - 3)


def choice_in_a_checkpoint(x: Tensor) -> Tensor:
    return checkpoint(lambda x: region(x) + 1, x, use_reentrant=False)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("function", [choices_in_regions, choice_in_a_checkpoint])
def test_cond_inside_of_what_only_groups(function: Callable[..., Any], runtime: str) -> None:
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    with torch.no_grad():
        for x in (torch.ones(3), -torch.ones(3)):
            assert_close(compiled(x), function(x))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_while_loop_runs_as_often_as_its_condition_says(runtime: str) -> None:
    def iterate(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x.sin()), (i, x))

    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    calls = [(torch.tensor(start), x) for start in (0, 3, 5, 9)]
    compiled = check(iterate, runtime, *calls)
    assert len(compiled.specializations) == 1


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_while_loop_that_exchanges_its_state(runtime: str) -> None:
    def fibonacci(n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b = torch.tensor(0), torch.tensor(1)
        return while_loop(
            lambda n, a, b: n > 0, lambda n, a, b: (n - 1, b.clone(), a + b), (n, a, b)
        )

    def exchange(n: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return while_loop(
            lambda n, x, y: n > 0,
            lambda n, x, y: (n - 1, y.clone(), x * 2),
            (n, x, y),
        )

    check(fibonacci, runtime, (torch.tensor(10),), (torch.tensor(0),))
    check(exchange, runtime, (torch.tensor(3), torch.ones(2, 2), torch.zeros(2, 2)))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_parts_of_a_state_are_written_where_they_are(runtime: str) -> None:
    def columns(x: Tensor) -> tuple[Tensor, Tensor]:
        def step(i: Tensor, rows: Tensor, sums: Tensor) -> tuple[Tensor, ...]:
            sums = sums + rows.sum(0)
            row = rows.index_select(0, i) * 0.5 + 1
            return i + 1, rows.index_copy(0, i + 1, row), sums

        start = torch.zeros(1, dtype=torch.int64), x, torch.zeros_like(x[0])
        _, rows, sums = while_loop(lambda i, rows, sums: (i < 5).all(), step, start)
        return rows, sums

    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    compiled = check(columns, runtime, (x,), (x * 2,))
    body = compiled.host_ir().partition("while(")[2].partition("\n  }\n")[0]
    assert 'kernel="put' in body
    assert "tensor<f32, [6, 3], cpu>" not in body


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_state_that_is_returned_as_it_was_is_kept(runtime: str) -> None:
    def shifted(x: Tensor) -> tuple[Tensor, Tensor]:
        def step(i: Tensor, new: Tensor, old: Tensor) -> tuple[Tensor, ...]:
            return i + 1, new.index_copy(0, i, old[:1] + 1), new.clone()

        start = torch.zeros(1, dtype=torch.int64), x, x * 0
        _, new, old = while_loop(lambda i, new, old: (i < 5).all(), step, start)
        return new, old

    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    check(shifted, runtime, (x,), (x * 2,))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_newtons_method_until_it_converges(runtime: str) -> None:
    def root(a: Tensor) -> Tensor:
        def unfinished(x: Tensor, a: Tensor) -> Tensor:
            return ((x * x - a).abs() > 1e-4 * a).any()

        def step(x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
            return (x + a / x) / 2, a.clone()

        return while_loop(unfinished, step, (torch.ones_like(a), a))[0]

    check(root, runtime, (torch.tensor([2.0, 9.0, 100.0]),), (torch.tensor([1.0, 1.0, 1.0]),))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_map_works_on_each_row(runtime: str) -> None:
    def rows(x: Tensor, y: Tensor) -> Tensor:
        return map_rows(lambda row, y: row.softmax(-1) @ y, x, y)

    x = torch.arange(24.0).reshape(3, 2, 4)
    check(rows, runtime, (x, torch.ones(4, 2)), (x.transpose(1, 2).contiguous().mT, x[0].mT[:, :2]))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_carries_a_state(runtime: str, reverse: bool) -> None:
    def cumulate(x: Tensor) -> tuple[Tensor, Tensor]:
        return scan(
            lambda carry, row: (carry * 0.5 + row, carry * 2),
            torch.zeros(4),
            x,
            dim=0,
            reverse=reverse,
        )

    x = torch.arange(20.0).reshape(5, 4)
    compiled = check(cumulate, runtime, (x,), (x * 2,))
    assert "for(begin=" in compiled.host_ir()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_rows_are_views(runtime: str) -> None:
    def cumulate(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        def turn(carry: Tensor, row: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
            return carry * row + other, (other @ other.mT).sum(-1)

        return scan(lambda c, rows: turn(c, *rows), torch.zeros(3, 4), (x, y), dim=0)

    x = torch.arange(60.0).reshape(5, 3, 4) / 60
    across = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    compiled = check(cumulate, runtime, (x, x + 1), (across, x), (x.expand(5, 3, 4), x[:, :1] * 2))
    assert "aten::select" not in compiled.host_ir()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_random_numbers_inside_a_branch_are_eagers(runtime: str) -> None:
    def draw(x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, lambda x: x + torch.rand(3), lambda x: x + 1, (x,))
        return y + torch.rand(3)

    compiled = hostjit.compile(draw, runtime=runtime)
    for sign in (1.0, -1.0, 1.0):
        x = torch.full((3,), sign)
        results = []
        for function in (compiled, draw):
            torch.manual_seed(3)
            with torch.no_grad():
                results.append(function(x))
        assert_close(results[0], results[1])


def test_other_higher_order_operators_run_eagerly() -> None:
    def products(x: Tensor) -> Tensor:
        result: Tensor = associative_scan(lambda a, b: a * b, x, dim=0, combine_mode="generic")
        return result

    def generic(x: Tensor) -> Tensor:
        return torch._higher_order_ops.strict_mode(lambda x: x * 2, (x,)) + products(x)

    compiled = hostjit.compile(generic, fallback=True)
    x = torch.arange(1.0, 5.0)
    with torch.no_grad(), pytest.warns(UserWarning, match="runs eagerly.*strict_mode"):
        found = compiled(x)
    with torch.no_grad():
        assert_close(found, generic(x))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_checkpoints_are_seen_through(runtime: str) -> None:
    def block(x: Tensor) -> Tensor:
        return checkpoint(lambda x: (x.sin() + 1).tanh(), x, use_reentrant=False) * 2

    check(block, runtime, (torch.arange(6.0),))


def test_an_error_inside_a_loop_is_eagers() -> None:
    def iterate(i: Tensor, x: Tensor, index: Tensor) -> Tensor:
        def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, x[index + i]

        return while_loop(lambda i, x: i < 5, step, (i, x))[1]

    compiled = hostjit.compile(iterate)
    x, index = torch.arange(4.0), torch.arange(4) % 2
    with torch.no_grad():
        for _ in range(2):
            with pytest.raises(IndexError, match="out of"):
                compiled(torch.tensor(0), x, index)
        assert_close(compiled(torch.tensor(4), x, index - 4), x[index])


def times(count: int) -> Callable[[Tensor, Tensor], Tensor]:
    def iterate(x: Tensor, w: Tensor) -> Tensor:
        def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, (x @ w).tanh()

        result: Tensor = while_loop(lambda i, x: i < count, step, (torch.tensor(0), x))[1]
        return result

    return iterate


@pytest.mark.parametrize("count", [3, 0])
@pytest.mark.parametrize("compile", ["hostjit", "torch"])
@pytest.mark.filterwarnings("ignore:hostjit. .* runs eagerly")
def test_gradients_through_while_loop_are_eagers(compile: str, count: int) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    iterate = times(count)
    compiled = (
        hostjit.compile(iterate)
        if compile == "hostjit"
        else torch.compile(iterate, backend="hostjit")
    )
    for _ in range(2):
        x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
        results = [function(x, w) for function in (compiled, iterate)]
        assert_close(*results)
        assert_close(*(torch.autograd.grad(result.square().sum(), (x, w)) for result in results))
