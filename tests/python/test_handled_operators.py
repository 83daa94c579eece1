# SPDX-License-Identifier: Apache-2.0
"""Operators in code that handles errors: whole where it is certain what Python would do there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

Function = Callable[..., Any]

KEYS, VALUES = torch.arange(12.0).reshape(4, 3), -torch.ones(2, 3)
INSIDE, OUTSIDE = torch.tensor([1, 3]), torch.tensor([1, 7])

pytestmark = [
    pytest.mark.filterwarnings("ignore:hostjit"),
    pytest.mark.skipif(
        not hasattr(torch._dynamo.utils, "_get_fake_value_impl"),
        reason="before torch 2.13 Dynamo is not followed there",
    ),
]


def cache_update(keys: Tensor, at: Tensor, values: Tensor) -> Tensor:
    keys[0] += 1
    try:
        keys.index_copy_(0, at, values)
        keys.index_copy_(0, at, values * 2)
    except NotImplementedError:
        keys[at] = values * 3
    return keys + 1


def lookup(keys: Tensor, at: Tensor, values: Tensor) -> Tensor:
    try:
        found = keys.index_select(0, at) + keys[at] + torch.nn.functional.embedding(at, keys)
    except (RuntimeError, KeyError):
        found = values * 3
    return found + values


def written(keys: Tensor, at: Tensor, values: Tensor) -> Tensor:
    try:
        keys[at] = values
        keys.index_fill_(1, torch.tensor([0]), 2.0)
        keys = keys + torch.take(keys, at).sum()
    except RuntimeError:
        keys += 10
    return keys + 1


def summed(keys: Tensor, at: Tensor, values: Tensor) -> Tensor:
    try:
        return keys.index_add_(0, at, values) + 1
    except NotImplementedError:
        return keys * 5


def called(keys: Tensor, at: Tensor, values: Tensor) -> Tensor:
    try:
        return cache_update(keys, at, values) * 2
    except (ValueError, NotImplementedError):
        return keys * 5


def outcome(function: Function, *arguments: Tensor) -> Any:
    """What it returns or raises, and what it leaves behind."""
    given = [argument.clone() for argument in arguments]
    try:
        result = function(*given)
    except Exception as error:
        return type(error), str(error).partition("\n")[0], given
    return result, "", given


def assert_same_outcome(fast: Function, function: Function, *arguments: Tensor) -> None:
    (found, text, left), (expected, expected_text, expected_left) = (
        outcome(call, *arguments) for call in (fast, function)
    )
    assert_close(left, expected_left)
    assert text == expected_text
    if isinstance(expected, Tensor):
        assert_close(found, expected)
    else:
        assert found is expected


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", [cache_update, lookup, written, summed, called])
def test_errors_that_no_handler_names_pass_it(function: Function, runtime: str) -> None:
    """An index out of range is no error that these handle."""
    fast = hostjit.compile(function, runtime=runtime, fallback=False)
    for at in (INSIDE, OUTSIDE, INSIDE, OUTSIDE):
        assert_same_outcome(fast, function, KEYS, at, VALUES)
    assert len(fast.specializations) == 1


def by_index(keys: Tensor, at: Tensor, values: Tensor) -> Tensor:
    try:
        keys.index_copy_(0, at, values)
    except (NotImplementedError, LookupError):
        keys[at % 4] = values * 3
    return keys + 1


def by_any(keys: Tensor, at: Tensor, values: Tensor) -> Tensor:
    try:
        keys.index_copy_(0, at, values)
    except NotImplementedError:
        keys += 1
    except Exception:
        keys += 2
    return keys + 1


def by_runtime_error(keys: Tensor, at: Tensor, values: Tensor) -> Tensor:
    try:
        keys.index_add_(0, at, values)
    except RuntimeError:
        keys += 2
    return keys + 1


def by_mask(keys: Tensor, at: Tensor, values: Tensor) -> Tensor:
    try:
        keys[keys[:, 0] < at.sum()] = values
    except RuntimeError:
        keys += 2
    return keys + 1


def in_the_end(keys: Tensor, at: Tensor, values: Tensor) -> Tensor:
    count = 1
    try:
        try:
            keys.index_copy_(0, at, values)
        except NotImplementedError:
            count = 2
        finally:
            keys += count
    except IndexError:
        keys += 3
    return keys + 1


NAMED: dict[str, Any] = {"error": NotImplementedError}


def by_variable(keys: Tensor, at: Tensor, values: Tensor) -> Tensor:
    try:
        keys.index_copy_(0, at, values)
    except NAMED["error"]:
        keys += 2
    return keys + 1


@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize(
    "function", [by_index, by_any, by_runtime_error, by_mask, in_the_end, by_variable]
)
def test_errors_that_a_handler_may_name_reach_it(
    make: Function, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = make(function)
    for number, at in enumerate((INSIDE, INSIDE, OUTSIDE, INSIDE, OUTSIDE)):
        if number == 3:
            monkeypatch.setitem(NAMED, "error", IndexError)
        assert_same_outcome(fast, function, KEYS, at, VALUES)


def test_a_global_that_hides_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = hostjit.compile(cache_update)
    for call in (fast, fast, cache_update):
        assert outcome(call, KEYS, OUTSIDE, VALUES)[0] is IndexError
    monkeypatch.setitem(globals(), "NotImplementedError", IndexError)
    reads = torch.tensor([1, -9])  # which neither way of writing takes
    for at in (INSIDE, OUTSIDE, reads, INSIDE):
        assert_same_outcome(fast, cache_update, KEYS, at, VALUES)


def of_dtype(x: Tensor) -> Tensor:
    y = x * 2
    try:
        y = torch.lgamma(y)
        y = y + 1
    except NotImplementedError:
        y = y - 1
    return y * 3


def of_dtype_in_place(x: Tensor) -> Tensor:
    y = x * 2
    try:
        y.digamma_()
    except RuntimeError:
        y.mul_(5)
    return y


def of_sizes(x: Tensor) -> Tensor:
    try:
        y = x @ x
    except RuntimeError:
        y = x @ x.mT
    return y + 1


def of_a_dim(x: Tensor) -> Tensor:
    try:
        return x.sum(3)
    except IndexError:
        return x.sum(0)


def of_a_dim_not_handled(x: Tensor) -> Tensor:
    try:
        return x.exp().sum(3)
    except NotImplementedError:
        return x.sum(0)


def of_a_caller(x: Tensor) -> Tensor:
    total = x.sum()
    try:
        total = total + of_a_dim_not_handled(x)
    except IndexError:
        total = total * 2
    return total


CERTAIN = {
    "dtype": (of_dtype, torch.ones(2, 3, dtype=torch.complex64), torch.ones(2, 3)),
    "dtype, in place": (of_dtype_in_place, torch.ones(2, 3, dtype=torch.complex64), torch.ones(3)),
    "sizes": (of_sizes, torch.ones(2, 3), torch.ones(3, 3)),
    "dim": (of_a_dim, torch.ones(2, 3), torch.ones(2, 2, 2, 2)),
    "a caller's": (of_a_caller, torch.ones(2, 3), torch.ones(2, 2, 2, 2)),
}


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("name", CERTAIN)
def test_errors_of_dtypes_and_sizes_are_certain(name: str, runtime: str) -> None:
    function, raises, does_not = CERTAIN[name]
    fast = hostjit.compile(function, runtime=runtime, fallback=False)
    for x in (raises, does_not, raises * 2, does_not * 2):
        assert_close(fast(x), function(x))


def test_errors_that_nothing_handles() -> None:
    fast = hostjit.compile(of_a_dim_not_handled)
    x = torch.ones(2, 3)
    for _ in range(3):
        with pytest.raises(IndexError):
            fast(x)


def says(x: Tensor) -> Tensor:
    try:
        return x @ x
    except RuntimeError as error:
        return x * len(str(error)) + len(error.args)


def test_what_an_error_says_is_eagers() -> None:
    fast = hostjit.compile(says)
    for x in (torch.ones(2, 3), torch.ones(2, 3), torch.ones(12, 3), torch.ones(3, 3)):
        assert_close(fast(x), says(x))


def drawn(x: Tensor) -> Tensor:
    try:
        y = x + torch.rand_like(x) + torch.nn.functional.dropout(x)
    except NotImplementedError:
        y = x
    return y


def test_trying_operators_draws_no_numbers() -> None:
    fast = hostjit.compile(drawn, fallback=False)
    x = torch.ones(5)
    found, expected = [], []
    for call, results in ((fast, found), (drawn, expected)):
        torch.manual_seed(0)
        results += [call(x) for _ in range(3)]
    assert_close(found, expected)


@pytest.mark.parametrize("rows", [4, 6])
def test_open_sizes(rows: int) -> None:
    fast = hostjit.compile(of_sizes)
    for size in (rows, 3, 5, 3, 7, rows):
        x = torch.ones(size, 3)
        assert_close(fast(x), of_sizes(x))
