# SPDX-License-Identifier: Apache-2.0
"""Numbers that code reads from tensors, `int(mask.sum())`: programs for any value of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

ROWS = 12
RUNTIMES = ("jit", "evaluator")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def first(x: Tensor, t: Tensor) -> Tensor:
    n = int(t.sum())
    return x[:n] * 2


def rest(x: Tensor, t: Tensor) -> Tensor:
    return x[t.sum().item() :] + 1


def last_columns(x: Tensor, t: Tensor) -> Tensor:
    n = int(t.sum())
    return x[:, -n:] * 2


def between(x: Tensor, t: Tensor) -> Tensor:
    n = int(t.sum())
    return x[n : n + 3, None, ..., : n // 2].exp()


def behind_an_index(x: Tensor, t: Tensor) -> Tensor:
    n = int(t.sum())
    return x[torch.tensor([0, 2, 1]), :n] * 2


def bound_by_a_tensor(x: Tensor, t: Tensor) -> Tensor:
    return x[: t.sum()] * 2


def written(x: Tensor, t: Tensor) -> Tensor:
    y = x * 2
    n = int(t.sum())
    y[:, :n] = 0
    y[n:] += 1
    return y


def written_argument(x: Tensor, t: Tensor) -> Tensor:
    n = int(t.sum())
    x[:n] = 0
    return x + 1


def counted(x: Tensor, t: Tensor) -> tuple[Tensor, int, float]:
    n = int(t.sum())
    return x * n, n, n / 2


SLICES = (
    first,
    rest,
    last_columns,
    between,
    behind_an_index,
    bound_by_a_tensor,
    written,
    written_argument,
    counted,
)


def compare(
    function: Callable[..., Any], fast: Callable[..., Any], values: list[int], x: Tensor
) -> None:
    for n in values:
        t = torch.tensor([n - 1, 1])
        given, expected_of = x.clone(), x.clone()
        found, expected = fast(given, t), function(expected_of, t)
        assert_close(found, expected)
        if isinstance(expected, Tensor):
            assert found.stride() == expected.stride()
        assert_close(given, expected_of)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("function", SLICES)
def test_slices_by_what_was_read(function: Callable[..., Any], runtime: str) -> None:
    fast = hostjit.compile(function, runtime=runtime, fallback=False)
    x = torch.randn(ROWS, 8)
    compare(function, fast, [4, 5, 6, 7, 5], x)
    assert len(fast.specializations) == 1
    compare(function, fast, [2, 12, 13, 11, 9, 1, 0, -5, -13, 4], x)


@pytest.mark.parametrize("function", [first, rest, last_columns])
def test_negative_and_great_bounds_are_one_program(function: Callable[..., Any]) -> None:
    fast = hostjit.compile(function, fallback=False)
    compare(function, fast, [-4, 6, 3, -5, 7, -10, 5], torch.randn(ROWS, 40))
    assert len(fast.specializations) == 1


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("function", [first, rest, last_columns, written])
def test_gradients(function: Callable[..., Any]) -> None:
    fast = hostjit.compile(function)
    x = torch.randn(ROWS, 40)
    with torch.enable_grad():
        for n in (4, 6, -4, -5, 7, 3, 0, 1, 20, -20):
            t = torch.tensor([n - 1, 1])
            mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
            found, expected = fast(mine, t), function(other, t)
            assert_close(found, expected)
            found.square().sum().backward()
            expected.square().sum().backward()
            assert_close(mine.grad, other.grad)
    if function is first:
        assert len(fast.specializations) == 3  # two of them for no rows and for one


def test_a_bound_beyond_the_dim() -> None:
    fast = hostjit.compile(first, fallback=False)
    compare(first, fast, [5, 12, 13, 1000, -3], torch.randn(ROWS, 8))
    assert len(fast.specializations) == 1


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "function",
    [
        lambda x, t: (torch.arange(int(t.sum())) * 2, torch.zeros(int(t.sum())) + 1),
        lambda x, t: x.narrow(0, 0, int(t.sum())) * 2,
        lambda x, t: [part * 2 for part in x.split([int(t.sum()), len(x) - int(t.sum())])],
        lambda x, t: x.new_ones(int(t.sum()), 3) + x[0, 0],
        lambda x, t: x[0].repeat(int(t.sum()), 1) + 1,
        lambda x, t: x * int(t.sum()) + t.sum().item(),
        lambda x, t: x / t.double().mean().item(),
        lambda x, t: x.roll(int(t.max()), 0) + 1,
    ],
)
def test_sizes_that_are_read(function: Callable[..., Any], runtime: str) -> None:
    fast = hostjit.compile(function, runtime=runtime)
    x = torch.randn(ROWS, 8)
    compare(function, fast, [4, 5, 6, 7, 8, 9, 10], x)
    assert len(fast.specializations) == 1
    compare(function, fast, [3, 2, 11, 12, 1, 0, 4, 5], x)


def test_the_longest_of_padded_rows() -> None:
    def step(padded: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        rows = padded[:, : lengths.max().item()]
        mask = torch.arange(rows.shape[1]) < lengths[:, None]
        return (rows * mask[..., None]).sum(1) / lengths[:, None], mask

    fast = hostjit.compile(step, fallback=False)
    for batch, longest in ((3, 9), (3, 5), (4, 7), (5, 20), (6, 2), (3, 4), (8, 30)):
        padded, lengths = torch.randn(batch, 32, 4), torch.randint(1, longest + 1, (batch,))
        lengths[0] = longest
        assert_close(fast(padded, lengths), step(padded, lengths))
    assert len(fast.specializations) == 2  # the first is for three rows


def test_a_count_of_a_mask_and_a_decision() -> None:
    def step(x: Tensor, mask: Tensor) -> Tensor:
        n = int(mask.sum())
        if n > 5:
            return x[:n] * 2
        return x[n:] - 1

    fast = hostjit.compile(step, fallback=False)
    x = torch.randn(ROWS, 3)
    for n in (2, 8, 3, 9, 4, 7, 10, 5):
        mask = torch.arange(ROWS) < n
        assert_close(fast(x, mask), step(x, mask))
    assert len(fast.specializations) == 2


def test_what_a_call_leaves_behind() -> None:
    class Counter(torch.nn.Module):
        total = 0

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            n = int(mask.sum())
            self.total += n
            return x[:n] + self.total

    model, other = Counter(), Counter()
    fast = hostjit.compile(model)
    x = torch.randn(ROWS, 3)
    for n in (3, 4, 6, 5, 9, 8):
        mask = torch.arange(ROWS) < n
        assert_close(fast(x, mask), other(x, mask))
        assert model.total == other.total


def test_in_a_loop_and_around_a_break() -> None:
    def step(x: Tensor, lengths: Tensor) -> list[Tensor]:
        found = []
        for row in range(3):
            n = int(lengths[row])
            found.append(x[row, :n] * 2)
        return found

    fast = hostjit.compile(step, fallback=False)
    x = torch.randn(3, 30)
    for call in range(8):
        lengths = torch.randint(2, 30, (3,), generator=torch.Generator().manual_seed(call))
        assert_close(fast(x, lengths), step(x, lengths))
    assert len(fast.specializations) == 1


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize(
    "function",
    [
        # Computed by what is no cheap function of the arguments.
        lambda x, t: x[: int((x @ x.T).argmax() % 5) + 1] * 2,
        # A loop over what was read.
        lambda x, t: [x * i for i in range(int(t.sum()))],
        # What was written before.
        lambda x, t: (t.add_(1), x[: int(t.sum())] * 2),
        lambda x, t: (t[:1].add_(1), x[: int(t.sum())] * 2),
        # Random numbers.
        lambda x, t: x[: int(torch.rand(3).sum() * 3)] + 1,
        # No finite float.
        lambda x, t: x * (t / 0).sum().item(),
        lambda x, t: x[: t.sum().item() ** 2 % 7] + len(str(int(t.sum()))),
    ],
)
def test_what_stays_in_parts(function: Callable[..., Any]) -> None:
    fast = hostjit.compile(function)
    x = torch.randn(ROWS, 8)
    for n in (4, 5, 6, 7, 8, 9, 10, 3, 2, 5, 4, 1, 0):
        t, u = torch.tensor([n - 1, 1]), torch.tensor([n - 1, 1])
        torch.manual_seed(n)
        expected = function(x, u)
        torch.manual_seed(n)
        assert_close(fast(x, t), expected, equal_nan=True)
        assert_close(t, u)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_views_of_memory_that_is_written() -> None:
    def step(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return a[: int(b.sum())] * 2

    fast = hostjit.compile(step)
    for n in (2, 3, 4, 2, 3):
        buffer, other = torch.tensor([n, 0, 0, 0, 0, 0, 0, 0, 0]), torch.zeros(9).long()
        other[0] = n
        assert_close(fast(buffer, buffer[:2]), step(other, other[:2]))
        assert_close(buffer, other)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("captures", [True, False])
@pytest.mark.parametrize("function", [last_columns, written, counted])
def test_through_torch_compile(function: Callable[..., Any], captures: bool) -> None:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=captures):
        fast = torch.compile(function, backend="hostjit")
        compare(function, fast, [4, 5, 6, 3, 7, 12, 20, 1, 0, -3, -20], torch.randn(ROWS, 8))


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("function", [last_columns, written, counted])
def test_recorded(function: Callable[..., Any]) -> None:
    fast = hostjit.capture(function)
    compare(function, fast, [4, 5, 6, 3, 7, 9, 8, 11, 12, 20, 1, 0, -3, -20], torch.randn(ROWS, 8))


def test_errors_are_those_of_eager() -> None:
    def step(x: Tensor, t: Tensor) -> Tensor:
        return x.narrow(0, 0, int(t.sum())) + 1

    fast = hostjit.compile(step)
    x = torch.randn(ROWS, 2)
    for n in (4, 5, 13, 6, -2, 7):
        t = torch.tensor([n - 1, 1])
        if 0 <= n <= ROWS:
            assert_close(fast(x, t), step(x, t))
            continue
        with pytest.raises(RuntimeError):
            fast(x, t)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_great_numbers_and_nan() -> None:
    def step(x: Tensor, t: Tensor) -> tuple[Tensor, float]:
        value = t.max().item()
        return x * value, value

    fast = hostjit.compile(step)
    x = torch.randn(3).double()
    for value in (1.5, 2.5, math.inf, -3.0, math.nan, 1e300, 4.0):
        t = torch.tensor([value, -1e308]).double()
        assert_close(fast(x, t), step(x, t), equal_nan=True)
    fast = hostjit.compile(step)
    for number in (3, 4, 1 << 40, 5, -(1 << 62), (1 << 63) - 1, 2):
        t = torch.tensor([number])
        assert_close(fast(x.long(), t), step(x.long(), t))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "function",
    [
        lambda loss: {"loss": loss.detach(), "value": loss.item()},
        lambda loss: (loss.detach(), loss * 2, loss.item() + 1),
    ],
)
def test_beside_results_that_autograd_parts(function: Callable[..., Any], runtime: str) -> None:
    compiled = hostjit.compile(function, runtime=runtime)
    weight = torch.ones(3, requires_grad=True)
    for factor in (2.0, 3.0, 5.0):
        loss = (weight * factor).sum()
        assert str(compiled(loss)).replace("HostjitBackward", "MulBackward0") == str(function(loss))
