# SPDX-License-Identifier: Apache-2.0
"""What an exception says that the code handles is what it says in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class CodedError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")


class ShownError(Exception):
    def __str__(self) -> str:
        return "shown"


def _missing(items: list[int], table: dict[str, int]) -> None:
    table["missing"]


def _popped(items: list[int], table: dict[str, int]) -> None:
    table.pop("missing")


def _sought(items: list[int], table: dict[str, int]) -> None:
    items.index(99)


def _beyond(items: list[int], table: dict[str, int]) -> None:
    (1, 2)[len(items)]


def _raised_again(items: list[int], table: dict[str, int]) -> None:
    try:
        _beyond(items, table)
    except IndexError as error:
        raise error


def _passed_on(items: list[int], table: dict[str, int]) -> None:
    try:
        _beyond(items, table)
    except IndexError:
        raise


def _key(items: list[int], table: dict[str, int]) -> None:
    raise KeyError("given")


def _file(items: list[int], table: dict[str, int]) -> None:
    raise OSError(2, "no such thing")


def _coded(items: list[int], table: dict[str, int]) -> None:
    raise CodedError(3)


def _shown(items: list[int], table: dict[str, int]) -> None:
    raise ShownError(1)


def _value(items: list[int], table: dict[str, int]) -> None:
    raise ValueError(f"{len(items)} items")


RAISING = [
    *(_missing, _popped, _sought, _beyond, _raised_again, _passed_on),
    *(_key, _file, _coded, _shown, _value),
]


def _torch_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="hostjit")


@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture, _torch_compile])
@pytest.mark.parametrize("raising", RAISING)
def test_texts(raising: Callable[..., None], make: Callable[..., Any]) -> None:
    def function(x: Tensor, items: list[int], table: dict[str, int]) -> Any:
        y = x + 1
        try:
            raising(items, table)
        except Exception as error:
            return y * len(str(error)), f"{error}", repr(error), error.args
        return y

    torch._dynamo.reset()
    fast = make(function)
    for _ in range(3):
        found, *texts = fast(torch.ones(2), [1, 2], {})
        expected, *of_eager = function(torch.ones(2), [1, 2], {})
        assert_close(found, expected)
        assert texts == of_eager


def test_what_the_code_says_itself_is_one_program() -> None:
    def function(x: Tensor, n: int) -> tuple[Tensor, str]:
        try:
            if n > 1:
                raise ValueError("too large")
        except ValueError as error:
            return x * 2, str(error)
        return x, ""

    fast = hostjit.compile(function, fallback=False)
    for n in (0, 2, 3):
        (found, text), (expected, of_eager) = fast(torch.ones(2), n), function(torch.ones(2), n)
        assert_close(found, expected)
        assert text == of_eager
