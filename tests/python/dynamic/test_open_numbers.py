# SPDX-License-Identifier: Apache-2.0
"""Ints among the arguments that differ from call to call: one program for all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import many_calls
import pytest
import torch
from torch.nn import functional

import hostjit

check = functools.partial(many_calls.check, programs=2)


def rows(compiled: hostjit.CompiledFunction) -> int:
    """The rows of the program that was used last."""
    program = compiled.specializations[0].program
    assert program is not None
    return program.num_rows


def test_a_loop_that_writes_and_reads_a_cache(runtime: str) -> None:
    def step(x: torch.Tensor, cache: torch.Tensor, position: int) -> torch.Tensor:
        cache[:, position] = x
        seen = cache[:, : position + 1]
        return (seen * x[:, None]).sum(1)

    compiled = hostjit.compile(step, runtime=runtime)
    ours, theirs = torch.zeros(2, 16, 4), torch.zeros(2, 16, 4)
    for position in range(16):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(x, ours, position), step(x, theirs, position))
        assert torch.equal(ours, theirs)
    assert len(compiled.specializations) == 2
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(torch.randn(2, 4), ours, 16)


def test_writes_at_a_position_with_open_lengths(runtime: str) -> None:
    def fill(cache: torch.Tensor, x: torch.Tensor, p: int) -> torch.Tensor:
        cache[:, p : p + x.shape[1]] = x
        return cache.sum(1)

    compiled = hostjit.compile(fill, runtime=runtime, dynamic=True)
    ours, theirs = torch.zeros(2, 32, 8), torch.zeros(2, 32, 8)
    places = [(2, 4), (6, 3), (9, 5), (0, 6), (14, 2), (3, 3), (30, 2), (16, 7), (5, 4), (-9, 3)]
    for position, length in places:
        x = torch.randn(2, length, 8)
        torch.testing.assert_close(compiled(ours, x, position), fill(theirs, x, position))
        assert torch.equal(ours, theirs)
    assert len(compiled.specializations) <= 3  # one more for what counts from the end


def test_attention_over_a_growing_cache(runtime: str) -> None:
    def step(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, end: int) -> torch.Tensor:
        seen = keys[:, :, :end], values[:, :, :end]
        return functional.scaled_dot_product_attention(q, *seen)

    keys, values = torch.randn(2, 3, 32, 8), torch.randn(2, 3, 32, 8)
    calls = [(torch.randn(2, 3, 1, 8), keys, values, end) for end in (4, 7, 9, 31, 5)]
    check(step, calls, runtime=runtime)


def test_bounds_of_slices(runtime: str) -> None:
    x = torch.randn(20, 6)

    def function(x: torch.Tensor, begin: int, end: int) -> tuple[torch.Tensor, ...]:
        return x[begin:end] * 2, x[:begin].sum(0), x[end:].contiguous()

    calls = [(x, 2, 7), (x, 3, 9), (x, 5, 8), (x, 4, 15)]
    check(function, calls, runtime=runtime)


def test_magnitudes_of_numbers(runtime: str) -> None:
    x = torch.randn(20, 6)

    def function(x: torch.Tensor, by: int) -> tuple[torch.Tensor, ...]:
        return x * abs(by), x[abs(by) :] * 2, x.roll(by) + abs(by - 5)

    check(function, [(x, by) for by in (3, 4, 9, -2, 7, -6, 12, -17, 2)], runtime=runtime)


def test_a_number_of_arithmetic_makes_no_row(runtime: str) -> None:
    x, whole = torch.randn(7), torch.arange(7)

    def function(x: torch.Tensor, whole: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
        return x * n + n // 3, whole * (n + 1), whole > n, x / n

    calls = [(x, whole, n) for n in (3, 5, -9, 100, -2, 7)]
    compiled = check(function, calls, runtime=runtime)
    assert rows(compiled) == 1


def test_indices_among_other_indices() -> None:
    x = torch.randn(5, 6, 7)
    picked = torch.tensor([0, 2, 1])

    def function(x: torch.Tensor, picked: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
        return x[n, ..., None] + 1, x[..., n] * 2, x[1:, n, None, ::2] + 0, x[picked, n] + 1, x[n]

    check(function, [(x, picked, n) for n in (2, 3, 4)])


def test_writes_at_indices() -> None:
    def function(x: torch.Tensor, y: torch.Tensor, n: int) -> torch.Tensor:
        x = x.clone()
        x[n] = 1.0
        x[:, n, 1:3] = y
        x[..., n] += 2
        return x

    check(function, [(torch.randn(5, 6, 7), torch.randn(5, 2), n) for n in (2, 3, 4)])


def test_numbers_make_tensors() -> None:
    def function(x: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
        places = torch.arange(n)
        return places * 2, torch.zeros(n, 3) + x, torch.full((2, n), 1.5), x.expand(n, 3) * 2

    check(function, [(torch.randn(3), n) for n in (2, 3, 9, 4)])


def test_a_size_of_a_view() -> None:
    def function(x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.view(x.shape[0], heads, -1).sum(-1)

    check(function, [(torch.randn(4, 24), heads) for heads in (2, 3, 4, 6, 12)])


def test_a_number_beside_open_sizes() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[:, :n].softmax(-1) * n

    calls = [(torch.randn(*shape), n) for shape, n in [((4, 9), 3), ((5, 8), 4), ((3, 20), 11)]]
    check(function, calls)


def test_a_number_that_is_a_size_of_an_argument() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.view(n, 3) + torch.arange(3) * n

    compiled = check(function, [(torch.randn(3 * n), n) for n in (2, 5, 7)])
    with pytest.raises(RuntimeError, match="is invalid for input of size"):
        compiled(torch.randn(12), 5)


def test_a_decision_by_a_number_makes_a_program_for_each_answer() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n if n % 2 == 0 else x + n

    check(function, [(torch.randn(4), n) for n in (2, 4, 6, 3, 5, 8, 7)], programs=3)


def test_what_has_to_be_known_is_known() -> None:
    def function(x: torch.Tensor, dim: int, times: int) -> torch.Tensor:
        for _ in range(times):
            x = x.sum(dim, keepdim=True) + x
        return x

    x = torch.randn(3, 4, 5)
    calls = [(x, dim, times) for dim, times in [(0, 2), (1, 2), (2, 2), (2, 3), (0, 2)]]
    check(function, calls, programs=4)


class Window(NamedTuple):
    begin: int
    size: int


def test_numbers_in_containers_and_keywords() -> None:
    def function(x: torch.Tensor, window: Window, *, options: dict[str, Any]) -> torch.Tensor:
        part = x.narrow(0, window.begin, window.size)
        return part * options["scale"] + options["shifts"][1]

    compiled = hostjit.compile(function)
    x = torch.randn(20)
    for begin, size, scale, shift in [(1, 4, 2, 3), (2, 5, 3, 4), (6, 7, 5, 9), (3, 3, 8, 2)]:
        options = {"scale": scale, "shifts": [7, shift]}
        found = compiled(x, Window(begin, size), options=options)
        torch.testing.assert_close(found, function(x, Window(begin, size), options=options))
    assert len(compiled.specializations) == 2


def test_dynamic_opens_numbers_at_once_or_never() -> None:
    calls = [(torch.randn(9), n) for n in (3, 4, 5)]
    check(lambda x, n: x[:n] * 2, calls, programs=1, dynamic=True)
    check(lambda x, n: x[:n] * 2, calls, programs=3, dynamic=False)


def test_zero_and_one_are_known_at_first() -> None:
    calls = [(torch.randn(9), n) for n in (0, 1, 2, 3)]
    check(lambda x, n: x[:n] * 2, calls, programs=3, dynamic=True)


def test_a_bool_is_no_int() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    calls = [(torch.arange(3), n) for n in (2, 3, True, 4, False)]
    check(function, calls, programs=4)


def test_a_number_that_is_not_read() -> None:
    check(lambda x, n: x * 2, [(torch.randn(3), n) for n in (2, 3, 4, -5, 10**30)], programs=3)


def test_numbers_out_of_range_are_known() -> None:
    x = torch.arange(5)
    check(lambda x, n: x + n, [(x, n) for n in (2, 3, 1 << 40, -(1 << 62), 5)], programs=4)


def test_numbers_too_large_for_the_type_of_a_tensor() -> None:
    def function(x: torch.Tensor, y: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
        return x + n, x > n, y * n, y < n

    x, y = torch.arange(5, dtype=torch.uint8), torch.arange(5, dtype=torch.int32)
    check(function, [(x, y, n) for n in (2, 3, 250, 300, 1 << 20)])


def test_numbers_of_operators() -> None:
    def function(x: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
        return x.topk(n).values, x.roll(n, 0), x**n, x.clamp(max=n), functional.pad(x, (n, 1))

    check(function, [(torch.randn(3, 20), n) for n in (2, 4, 7, 5)])


def test_a_result_that_is_a_number_follows_the_argument() -> None:
    def function(x: torch.Tensor, n: int) -> tuple[torch.Tensor, int]:
        return x * n, n + 1

    compiled = hostjit.compile(function)
    for n in (2, 3, 4, 5):
        found, number = compiled(torch.ones(3), n)
        assert number == n + 1
        assert torch.equal(found, torch.full((3,), float(n)))


def test_gradients_are_right_for_each_number() -> None:
    weight = torch.nn.Parameter(torch.randn(8, 4))
    compiled = hostjit.compile(lambda x, n: (x @ weight)[:, :n].sum() * n)
    with torch.enable_grad():
        for n in (2, 3, 4, 2):
            x = torch.randn(3, 8)
            (found,) = torch.autograd.grad(compiled(x, n), weight)
            (expected,) = torch.autograd.grad((x @ weight)[:, :n].sum() * n, weight)
            torch.testing.assert_close(found, expected)


def test_reused_outputs_of_numbers() -> None:
    compiled = hostjit.compile(lambda x, n: x * n, reuse_outputs=True)
    x = torch.randn(5)
    results = [compiled(x, n) for n in (2, 3, 4, 5)]
    assert torch.equal(results[-1], x * 5)
    assert results[-1] is results[-2]


def test_two_equal_numbers_are_two() -> None:
    def function(x: torch.Tensor, first: int, second: int) -> torch.Tensor:
        return x[:first] + x[:second].sum()

    x = torch.randn(12)
    check(function, [(x, 3, 3), (x, 4, 4), (x, 5, 7), (x, 6, 2)])


def test_numbers_that_must_agree() -> None:
    def function(x: torch.Tensor, first: int, second: int) -> torch.Tensor:
        return x[:first] + x[:second]

    x = torch.randn(12)
    compiled = check(function, [(x, 3, 3), (x, 4, 4), (x, 5, 5)])
    with pytest.raises(RuntimeError, match="must match"):
        compiled(x, 5, 6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x * (n * n * n),
        lambda x, n: x + n * n * n // 3,
        lambda x, n: x / (n * n * n),
        lambda x, n: torch.full_like(x, n * n * n),
    ],
)
def test_what_may_leave_64_bits_is_compiled_for_each_number(
    function: Callable[..., Any],
) -> None:
    compiled = hostjit.compile(function)
    x = torch.ones(3, dtype=torch.float64)
    for n in (2, 3, 4):
        torch.testing.assert_close(compiled(x, n), function(x, n))
    assert "int64" in "".join(compiled.static_reasons())
    try:
        expected = function(x, 3_000_000)
    except OverflowError:
        with pytest.raises(OverflowError):
            compiled(x, 3_000_000)
    else:
        torch.testing.assert_close(compiled(x, 3_000_000), expected)


def _quadruple(x: torch.Tensor, n: int) -> Any:
    while n < 1 << 62:
        n = n * 4
    return x * 2, n


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: (x * 2, n << 61),
        lambda x, n: (x * 2, n * 2**61, -n),
        lambda x, n: (x * 2, n * n * n * n),
        _quadruple,
    ],
)
def test_results_of_graphs_of_more_than_64_bits(
    function: Callable[..., Any], dynamic: bool | None
) -> None:
    compiled = torch.compile(function, backend="hostjit", dynamic=dynamic)
    for n in (3, 5, 7, 9, 11, 1 << 20, 12, 1 << 40, 4):
        (found, *ints), (expected, *expected_ints) = (
            f(torch.ones(3), n) for f in (compiled, function)
        )
        torch.testing.assert_close(found, expected)
        assert ints == expected_ints
