# SPDX-License-Identifier: Apache-2.0
"""Inputs of which a part is written: in place where nobody can tell, without copying the whole."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from against_eager import RUNTIMES
from torch import Tensor
from torch.testing import assert_close

import hostjit

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def row(x: Tensor, n: int, y: Tensor) -> Tensor:
    x[n] = y
    return y + 1


def row_that_is_read(x: Tensor, n: int, y: Tensor) -> Tensor:
    before = x.sum(1)
    x[n] = y
    return x.mean(0) * before.sum()


def column(x: Tensor, n: int, y: Tensor) -> Tensor:
    x[:, n] = y.sum()
    return (x[:, : n + 1] @ y[: n + 1, None]).softmax(0)


def several(x: Tensor, n: int, y: Tensor) -> Tensor:
    x[n] = y
    x[n + 1] = x[n] * 2 + x[0]
    x[:2] += 1
    return x * 3


def shifted(x: Tensor, n: int, y: Tensor) -> Tensor:
    x[:-1] = x[1:].clone()
    x[-1] = y * n
    return x.flatten() + 1


def every_other(x: Tensor, n: int, y: Tensor) -> Tensor:
    x[::2, 1:] = y[1:] * n
    return x.t() @ x


def as_another_type(x: Tensor, n: int, y: Tensor) -> Tensor:
    x[n] = y.double() / 3
    return x - 1


IN_PLACE = (row, row_that_is_read, column, several, shifted, every_other, as_another_type)


def old_elements(x: Tensor, n: int, y: Tensor) -> Tensor:
    before = x * 1
    kept = x[1]
    z = before + 1
    x[n] = kept + y
    return z @ x.t()


def from_itself(x: Tensor, n: int, y: Tensor) -> Tensor:
    x[n] = x[0]
    return x + 1


def returned(x: Tensor, n: int, y: Tensor) -> tuple[Tensor, Tensor]:
    x[n] = y
    return x, x[n]


def returned_before(x: Tensor, n: int, y: Tensor) -> tuple[Tensor, Tensor]:
    z = x.clone()
    x[n] = y
    w = x.clone()
    x[0] = y * 2
    return z, w


def two_inputs(x: Tensor, n: int, y: Tensor) -> Tensor:
    x[n] = y
    y[0] = x[0, 1]
    x[0] = y
    return x + y


def all_of_it(x: Tensor, n: int, y: Tensor) -> Tensor:
    x[n] = y
    x.mul_(2)
    return x - 1


def check(function: Function, runtime: str, make: Callable[[], Tensor]) -> Any:
    fast = hostjit.compile(function, runtime=runtime)
    with torch.no_grad():
        for n in (1, 0, 1, 2):
            args = make(), n, torch.randn(3)
            ours, eager = copy.deepcopy(args), copy.deepcopy(args)
            assert_close(fast(*ours), function(*eager))
            assert_close(ours, eager)
    return fast


@pytest.mark.filterwarnings("ignore:hostjit")  # columns of a buffer that are written twice
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "function",
    [*IN_PLACE, old_elements, from_itself, returned, returned_before, two_inputs, all_of_it],
)
def test_against_eager(function: Function, runtime: str) -> None:
    check(function, runtime, lambda: torch.randn(4, 3))
    check(function, runtime, lambda: torch.randn(3, 4).t())
    check(function, runtime, lambda: torch.randn(4, 6)[:, 1:4])


@pytest.mark.parametrize("function", IN_PLACE)
def test_no_copy_of_the_whole(function: Function) -> None:
    text = check(function, "jit", lambda: torch.randn(4, 3)).host_ir().split("kernel @")[0]
    assert not re.search(r"copy\(source=%args_0,|out=%args_0\)", text)


def row_of_tensor(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[i] = y
    i.add_(1).remainder_(3)
    return x.mean(0) + x[i]


def column_of_tensor(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    before = x.sum()
    x[:, i] = y[0]
    x[i, 1:] += y[1:]
    return x.t() @ x + before


def element_of_tensor(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[i, i] = y[1]
    x[0, i] = x[i, 0] * 2
    return x.sum(1)


def intermediate(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    z = x * 2
    z[i] = y
    w = z.exp()
    z[:, i] = 0.5
    return z + w


OF_TENSORS = (row_of_tensor, column_of_tensor, element_of_tensor, intermediate)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("function", OF_TENSORS)
def test_places_that_tensors_tell(function: Function, runtime: str) -> None:
    fast = hostjit.compile(function, runtime=runtime, fallback=False)
    makers = (
        lambda: torch.randn(4, 3),
        lambda: torch.randn(3, 4).t(),
        lambda: torch.randn(4, 6)[:, 1:4],
    )
    with torch.no_grad():
        for make in makers:
            for n in (1, 0, -1, 2, -3):
                args = make(), torch.tensor(n), torch.randn(3)
                ours, eager = (args[0], args[1].clone(), args[2]), copy.deepcopy(args)
                assert_close(fast(*ours), function(*eager))
                assert_close(ours, eager)
            assert "aten::index_put" not in fast.host_ir()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_places_of_other_types(dtype: torch.dtype) -> None:
    def function(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
        x[i] = y
        i.add_(1).remainder_(4)
        return y.flip(0)

    fast = hostjit.compile(function, fallback=False)
    with torch.no_grad():
        for n in (1, 0, -1, 3, -4):
            args = torch.randn(4, 3).to(dtype), torch.tensor(n), torch.randn(3).to(dtype)
            ours, eager = copy.deepcopy(args), copy.deepcopy(args)
            assert_close(fast(*ours), function(*eager))
            assert_close(ours, eager)
        with pytest.raises(IndexError, match="index 4 is out of bounds for dimension 0"):
            fast(args[0], torch.tensor(4), args[2])
    if not dtype.is_complex:  # operators are called for, which might fail
        text = fast.host_ir().split("kernel @")[0]
        assert not re.search(r"copy\(source=%args_0,|out=%args_0\)", text)


def test_gradients_of_what_is_read() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        z = w.exp()
        x[1] = w.detach() * 2
        return (x * z).sum()

    fast = hostjit.compile(function)
    for _ in range(3):
        x, w = torch.randn(4, 3), torch.randn(3)
        found = []
        for call in (fast, function):
            state, leaf = x.clone(), w.clone().requires_grad_()
            call(state, leaf).backward()
            found.append((state, leaf.grad))
        assert_close(*found)


def fails_behind(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    y += 1
    x[1] = y
    z = x[i]
    x[0] = z[0]
    return x + 1


def fails_ahead(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    y += 1
    z = x[i]
    x[1] = z[0]
    return x.mean(0)


def fails_between(x: Tensor, i: Tensor, y: Tensor) -> Tensor:
    x[1] = y
    y += 1
    z = y[i % 3]
    return x @ x.t() + z.sum() + x[i].sum()


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("function", [fails_ahead, fails_behind, fails_between])
def test_a_call_that_fails_leaves_what_eager_does(function: Function, runtime: str) -> None:
    fast = hostjit.compile(function, runtime=runtime)
    with torch.no_grad():
        for places in ([0, 1], [1, 9], [2, 3], [7, 0], [0, 0]):
            args = torch.randn(4, 3), torch.tensor(places), torch.randn(3)
            ours, eager = copy.deepcopy(args), copy.deepcopy(args)
            if max(places) > 3:
                for call, given in ((fast, ours), (function, eager)):
                    with pytest.raises(IndexError, match=f"index {max(places)} is out of bounds"):
                        call(*given)
            else:
                assert_close(fast(*ours), function(*eager))
            assert_close(ours, eager)
