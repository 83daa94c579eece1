# SPDX-License-Identifier: Apache-2.0
"""Ints that a `while_loop` carries: eager's ints, of one program wherever they fit into 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils import _pytree as pytree

import hostjit

RUNTIMES = ["jit", "evaluator"]
WHOLE: dict[str, Callable[[Tensor], Any]] = {}
IN_PARTS: dict[str, Callable[[Tensor], Any]] = {}

Example = Callable[[Tensor], Any]


def example(functions: dict[str, Example]) -> Callable[[Example], Example]:
    def register(function: Example) -> Example:
        functions[function.__name__] = function
        return function

    return register


@example(WHOLE)
def counts(x: Tensor) -> Any:
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + i), (0, x))


@example(WHOLE)
def runs_never(x: Tensor) -> Any:
    return while_loop(lambda i, x: i < 0, lambda i, x: (i + 1, x * 2), (3, x))


@example(WHOLE)
def only_ints(x: Tensor) -> Any:
    return while_loop(lambda i, j: i < 5, lambda i, j: (i + 1, j + i), (0, 1))


@example(WHOLE)
def from_sizes(x: Tensor) -> Any:
    rows = x.shape[0]
    return while_loop(
        lambda i, x: 2 * i > rows, lambda i, x: (i - 1, x * rows + i), (x.shape[0], x)
    )


@example(WHOLE)
def goes_on_with_ints(x: Tensor) -> Any:
    i, y = while_loop(lambda i, x: x.sum() < 90, lambda i, x: (i + 1, x.abs() * 2 + 1), (0, x))
    return {"count": i + 1, "rows": x.shape[0]}, y * i, i, y.sum()


@example(WHOLE)
def arithmetic(x: Tensor) -> Any:
    def step(i: int, x: Tensor) -> tuple[int, Tensor]:
        number = (i - 4) % 3 * 2 + (i - 4) // 3 + abs(i - 5) + i**2 - max(i, 3) + min(2, i)
        return i + 1, number - x / (i + 1)

    return while_loop(lambda i, x: i < 10, step, (0, x))


@example(WHOLE)
def an_int_that_stays(x: Tensor) -> Any:
    return while_loop(lambda i, n, x: i < n, lambda i, n, x: (i + 2, n, x * n), (0, x.shape[0], x))


@example(WHOLE)
def halves(x: Tensor) -> Any:
    return while_loop(lambda i, x: i > 0, lambda i, x: (i // 2, x + i % 3), (13, x))


@example(WHOLE)
def types(x: Tensor) -> Any:
    def step(i: int, x: Tensor, n: Tensor, s: Tensor) -> tuple[int, Tensor, Tensor, Tensor]:
        return i + 1, torch.where((x > i) == i, x, i), n * i + (x > 2).sum(), s / i + i

    start = (1, x, x.long(), x.sum())
    return while_loop(lambda i, *_: i < 5, step, start)


@example(WHOLE)
def regions_that_read_ints(x: Tensor) -> Any:
    def step(i: int, x: Tensor) -> tuple[int, Tensor]:
        carried, rows = scan(lambda c, r: (c + r * i, c * 2), x[0] * 0, x)
        y = torch.cond(i % 2 == 0, lambda y: y * 2 - i, lambda y: y + 1, (rows + carried,))
        return i + 1, torch.cond(y.sum() > 0, lambda y: y / 9, lambda y: y - i, (y,))

    return while_loop(lambda i, x: i < 4, step, (0, x))


@example(WHOLE)
def in_a_branch(x: Tensor) -> Any:
    def yes(x: Tensor) -> Tensor:
        result: Tensor = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + i), (0, x))[1]
        return result

    return torch.cond(x.sum() > 0, yes, lambda x: x * 2, (x,))


@example(IN_PARTS)
def more_than_64_bits(x: Tensor) -> Any:
    return while_loop(lambda i, j, x: i < 70, lambda i, j, x: (i + 1, j * 2, x + 1), (0, 3, x))


@example(IN_PARTS)
def true_division(x: Tensor) -> Any:
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x + i / 2), (0, x))


@example(IN_PARTS)
def other_types(x: Tensor) -> Any:
    def step(i: int, x: Tensor, y: Tensor) -> tuple[int, Tensor, Tensor]:
        return i + 1, x * 0 + i, y + i

    return while_loop(lambda i, x, y: i < 300, step, (0, x.bfloat16(), x.sum().int()))


@example(IN_PARTS)
def sizes_of_ints(x: Tensor) -> Any:
    i, y = while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x + i), (0, x))
    return y[:i]


@example(IN_PARTS)
def nested(x: Tensor) -> Any:
    def step(state: dict[str, int], x: Tensor) -> tuple[dict[str, int], Tensor]:
        return {"i": state["i"] + 1, "j": state["j"] * 2 - 1}, x - state["j"]

    return while_loop(lambda state, x: state["i"] < 3, step, ({"i": 0, "j": 3}, x))


def check_same(found: Any, expected: Any) -> None:
    leaves, spec = pytree.tree_flatten(found)
    others, other = pytree.tree_flatten(expected)
    assert spec == other
    assert [*map(type, leaves)] == [*map(type, others)]
    for ours, eager in zip(leaves, others, strict=True):
        if isinstance(eager, Tensor):
            torch.testing.assert_close(ours, eager, check_stride=True)
        else:
            assert ours == eager


def check(function: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    with torch.no_grad():
        for rows, shift in ((3, -2), (4, -2), (5, 0), (3, -9), (7, -1)):
            x = torch.arange(2.0 * rows).reshape(rows, 2) + shift
            check_same(compiled(x), function(x))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", WHOLE)
def test_one_program(name: str, runtime: str) -> None:
    torch.compiler.reset()
    options = {"runtime": runtime, "fallback": False}
    compiled = hostjit.compile(WHOLE[name], dynamic=True, **options)  # type: ignore[call-overload]
    check(WHOLE[name], compiled)
    assert "while(condition=" in compiled.host_ir()
    assert len(compiled.specializations) == 1


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.filterwarnings("error:hostjit")
def test_through_torch_compile(name: str) -> None:
    torch.compiler.reset()
    check(WHOLE[name], torch.compile(WHOLE[name], backend="hostjit"))


@pytest.mark.parametrize("name", IN_PARTS)
@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
def test_where_tensors_would_mean_something_else(name: str) -> None:
    for compile in (hostjit.compile, lambda function: torch.compile(function, backend="hostjit")):
        torch.compiler.reset()
        check(IN_PARTS[name], compile(IN_PARTS[name]))


@pytest.mark.filterwarnings("ignore:hostjit. .* runs in parts")
def test_an_int_that_is_kept() -> None:
    class Counter(nn.Module):
        count = 0

        def forward(self, x: Tensor) -> Tensor:
            self.count, y = while_loop(
                lambda i, x: x.sum() < 50, lambda i, x: (i + 1, x.abs() * 2 + 1), (0, x)
            )
            result: Tensor = y
            return result

    torch.compiler.reset()
    module, eager = Counter(), Counter()
    compiled = hostjit.compile(module)
    with torch.no_grad():
        for scale in (1, 2, 3, 9):
            x = torch.ones(3) * scale
            torch.testing.assert_close(compiled(x), eager(x))
            assert type(module.count) is int and module.count == eager.count


def test_saved_programs_return_ints(tmp_path: Path) -> None:
    torch.compiler.reset()
    x = torch.ones(3, 2)
    with torch.no_grad():
        compiled = hostjit.compile(goes_on_with_ints)
        compiled(x)
        hostjit.save(compiled, tmp_path / "loop.hj")
        check_same(hostjit.load(tmp_path / "loop.hj")(x), goes_on_with_ints(x))
