# SPDX-License-Identifier: Apache-2.0
"""Calls that bind a Dim: one program for all of its values."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.testing import assert_close

import hostjit


class Decoder(nn.Module):
    """One block with a cache of keys and values, and a vocabulary of 31."""

    def __init__(self, length: int, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(31, width)
        self.norm = nn.LayerNorm(width)
        self.projection = nn.Linear(width, 3 * width)
        self.hidden = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, 31)
        )
        self.register_buffer("keys", torch.zeros(length, width))
        self.register_buffer("values", torch.zeros(length, width))

    def forward(self, token: torch.Tensor, n: int) -> torch.Tensor:
        """Return the next token behind `n` earlier ones and this one."""
        x = self.embedding(token)
        q, k, v = self.projection(self.norm(x)).chunk(3, dim=-1)
        self.keys[n : n + 1] = k
        self.values[n : n + 1] = v
        scores = q @ self.keys[: n + 1].T * 0.25
        x = x + scores.softmax(-1) @ self.values[: n + 1]
        logits: torch.Tensor = self.hidden(x)
        return logits.argmax(-1)


@pytest.mark.parametrize("make", [hostjit.capture, hostjit.compile])
def test_500_lengths_of_a_cache_are_one_compilation(
    make: Callable[..., hostjit.CompiledFunction], runtime: str
) -> None:
    eager = Decoder(512).eval()
    model = copy.deepcopy(eager)
    fast = make(model, runtime=runtime, fallback=False)
    length = hostjit.Dim("length", 0, 511)
    expected, found = [torch.tensor([3])], [torch.tensor([3])]
    with torch.no_grad():
        for n in range(2, 502):
            expected.append(eager(expected[-1], n))
            found.append(fast(found[-1], length(n)))
    assert torch.cat(found).tolist() == torch.cat(expected).tolist()
    assert len(set(torch.cat(found).tolist())) > 1
    assert_close(model.keys, eager.keys)
    assert len(fast.specializations) == 1


def test_dims_in_containers_and_keywords(runtime: str) -> None:
    @hostjit.capture(runtime=runtime, fallback=False)
    def window(x: torch.Tensor, where: dict[str, Any], *, scale: int) -> torch.Tensor:
        start, end = where["range"]
        return x[start:end] * scale

    n, k = hostjit.Dim("n", 0, 20), hostjit.Dim("k", -5, 5)
    x = torch.randn(20)
    for start, end, scale in ((2, 9, 3), (2, 9, 3), (4, 15, -2), (3, 20, 5), (5, 6, 4)):
        where = {"range": (n(start), n.bind(end))}
        assert_close(window(x, where, scale=k(scale)), x[start:end] * scale, check_stride=True)
    assert len(window.specializations) <= 2  # one element broadcasts


def test_a_plain_int_in_the_place_of_a_dim() -> None:
    n = hostjit.Dim("n", 1, 50)
    fast = hostjit.compile(lambda x, k: x[:k] + k, fallback=False)
    x = torch.randn(50)
    with torch.no_grad():
        for k in (n(5), n(7), 9, n(11), 13):
            assert_close(fast(x, k), x[: int(k)] + int(k))
    assert len(fast.specializations) == 1


def test_a_dim_after_plain_ints() -> None:
    n = hostjit.Dim("n", 1, 50)
    fast = hostjit.compile(lambda x, k: x[:k] + k, fallback=False)
    x = torch.randn(50)
    with torch.no_grad():
        for k in (5, n(5), n(7), 5, n(9)):
            assert_close(fast(x, k), x[: int(k)] + int(k))
    assert len(fast.specializations) == 2


def test_dynamic_false_closes_no_dim() -> None:
    n = hostjit.Dim("n", 1, 50)
    fast = hostjit.compile(lambda x, k, j: x[:k] * j, dynamic=False, fallback=False)
    x = torch.randn(50)
    with torch.no_grad():
        for k, j in ((n(5), 2), (n(7), 2), (n(7), 3), (n(9), 3)):
            assert_close(fast(x, k, j), x[: int(k)] * j)
    assert len(fast.specializations) == 2


@torch.enable_grad()
def test_gradients() -> None:
    n = hostjit.Dim("n", 1, 50)
    fast = hostjit.compile(lambda x, k: (x[:k] * k).sum(), fallback=False)
    for k in (4, 9, 31):
        x = torch.randn(50, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        fast(x, n(k)).backward()
        (y[:k] * k).sum().backward()
        assert_close(x.grad, y.grad)
    assert len(fast.specializations) == 1


def test_values_out_of_range() -> None:
    n = hostjit.Dim("n", 1, 5)
    with pytest.raises(hostjit.Error, match=r"Dim 'n' is 6, expected 1 to 5"):
        n(6)
    with pytest.raises(hostjit.Error, match=r"Dim 'n' is 0, expected 1 to 5"):
        n.bind(0)
    with pytest.raises(TypeError, match="Dim 'n' is given a float"):
        n(2.0)  # type: ignore[arg-type]
    with pytest.raises(hostjit.Error, match="Dim 'm' has the range 3 to 2"):
        hostjit.Dim("m", 3, 2)


def test_a_loop_that_many_times_has_a_program_for_each() -> None:
    n = hostjit.Dim("n", 1, 9)

    def power(x: torch.Tensor, k: int) -> torch.Tensor:
        for _ in range(k):
            x = x * 1.5
        return x

    fast = hostjit.capture(power)
    x = torch.randn(5)
    fast(x, n(2))
    with pytest.warns(UserWarning, match="compiled for each value of Dim 'n'"):
        fast(x, n(2))
    for k in (2, 3, 4, 3):
        assert_close(fast(x, n(k)), power(x, k))


def _for(x: torch.Tensor, k: int) -> torch.Tensor:
    for step in range(k):
        x = x * 0.9 + step
    return x


def _while(x: torch.Tensor, k: int) -> torch.Tensor:
    while k > 0:
        x, k = x * 0.5 + k, k - 2
    return x


def _until(x: torch.Tensor, k: int) -> torch.Tensor:
    for step in range(99):
        if step == k:
            break
        x = x.tanh() + step
    return x


def _rows(x: torch.Tensor, k: int) -> torch.Tensor:
    found = [x[row] * row for row in range(k)]
    return torch.stack(found) if found else x[:0]


def _write(x: torch.Tensor, k: int) -> torch.Tensor:
    for row in reversed(range(k)):
        x[row] += row
    return x[:k].sum(0)


@pytest.mark.parametrize("function", [_for, _while, _until, _rows, _write])
@pytest.mark.parametrize("make", [hostjit.capture, hostjit.compile])
@pytest.mark.filterwarnings("ignore:hostjit")
def test_loops_of_python_are_right_for_each_value(
    make: Callable[..., hostjit.CompiledFunction], function: Callable[..., Any], runtime: str
) -> None:
    n = hostjit.Dim("n", 0, 20)
    fast = make(function, runtime=runtime)
    for k in (3, 3, 3, 4, 5, 0, 1, 2, 7, 12, 13, 20, 3, 4, 13):  # more than there are programs
        x = torch.randn(20, 3)
        given = x.clone()
        assert_close(fast(given, n(k)), function(x, k))
        assert_close(given, x)


@pytest.mark.parametrize("make", [hostjit.capture, hostjit.compile])
def test_a_while_loop_over_a_count_is_one_program(
    make: Callable[..., hostjit.CompiledFunction], runtime: str
) -> None:
    n = hostjit.Dim("n", 0, 500)

    def repeat(x: torch.Tensor, cache: torch.Tensor, k: int) -> tuple[torch.Tensor, ...]:
        def step(left: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return left - 1, x * 0.9 + cache.index_select(0, left.reshape(1) - 1)[0]

        left = torch.full((), k)
        return while_loop(lambda left, x: left > 0, step, (left, x))

    def expected(x: torch.Tensor, cache: torch.Tensor, k: int) -> torch.Tensor:
        for left in range(k, 0, -1):
            x = x * 0.9 + cache[left - 1]
        return x

    fast = make(repeat, runtime=runtime, fallback=False)
    for k in (2, 2, 2, 3, 0, 1, 17, 500, 499, 0, 5):
        x, cache = torch.randn(3), torch.randn(500, 3)
        assert_close(fast(x, cache, n(k))[1], expected(x, cache, k))
    assert len(fast.specializations) == 1
    assert "while" in fast.host_ir()


def test_calls_that_differ_otherwise() -> None:
    n = hostjit.Dim("n", 1, 50)
    strict = hostjit.capture(lambda x, k: x[:k] + 1, on_mismatch="raise", fallback=False)
    x = torch.randn(50)
    for k in (3, 4, 5, 6):
        assert_close(strict(x, n(k)), x[:k] + 1)
    with pytest.raises(hostjit.MismatchError, match=r"argument 'x': dtype expected"):
        strict(x.double(), n(7))
    refused = hostjit.capture(lambda x, k: x[:k], static_inputs=["x"])
    with pytest.raises(hostjit.Error, match="static inputs"):
        refused(x, n(3))


def test_they_are_ints() -> None:
    n = hostjit.Dim("n", 1, 50)
    five = n(5)
    assert five == 5 and five is n(5) and isinstance(five, int) and five + 1 == 6
    assert repr(five) == "n=5" and repr(n) == "hostjit.Dim('n', 1, 50)"
    assert pickle.loads(pickle.dumps(five)) == 5
    assert copy.deepcopy(five).dim.name == "n"
    assert torch.zeros(five).shape == (5,)


@pytest.mark.parametrize("needs_gradient", [False, True])
@torch.enable_grad()
def test_a_computed_size_that_is_broadcast(needs_gradient: bool, runtime: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sin() * y[: y.shape[0] // 4] + y[: y.shape[0] // 4].cos()

    for dynamic in (None, True):
        fast = hostjit.compile(function, runtime=runtime, dynamic=dynamic)
        for size in (5, 6, 7, 16, 19, 4):
            x, y = torch.randn(3, 4, requires_grad=needs_gradient), torch.randn(size)
            torch.testing.assert_close(fast(x, y), function(x, y))
