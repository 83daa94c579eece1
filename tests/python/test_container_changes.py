# SPDX-License-Identifier: Apache-2.0
"""Changes of deques of limited length, and of the order of an OrderedDict, are Python's own."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


def deque_of_two(items: deque[Tensor], x: Tensor) -> Tensor:
    items.append(x)
    items.appendleft(x * 2)
    items.rotate(1)
    return items[0] + 1


def extended_deque(items: deque[Tensor], x: Tensor) -> Tensor:
    items.extend([x, x + 1])
    items.popleft()
    return items[0] + 1


def own_deque(items: deque[Tensor], x: Tensor) -> Tensor:
    own = deque([x], maxlen=2)
    own.extend([x + 1, x + 2])
    own.append(x * 3)
    return own[0] + items[0]


@pytest.mark.parametrize("function", [deque_of_two, extended_deque, own_deque])
def test_deques_of_limited_length(function: Callable[[deque[Tensor], Tensor], Tensor]) -> None:
    fast = hostjit.compile(function)
    x = torch.ones(1) * 5
    found = deque([torch.ones(1), torch.zeros(1)], maxlen=3)
    expected = deque([torch.ones(1), torch.zeros(1)], maxlen=3)
    with torch.no_grad():
        for _ in range(4):
            assert_close(fast(found, x), function(expected, x))
            assert_close(list(found), list(expected))


def test_an_ordered_dict_whose_order_changes() -> None:
    def function(items: OrderedDict[str, Tensor]) -> Tensor:
        items.move_to_end("x")
        return items["x"] + 1

    fast = hostjit.compile(function)
    with torch.no_grad():
        for _ in range(3):
            items = OrderedDict(x=torch.ones(1), y=torch.zeros(1))
            assert_close(fast(items), torch.full((1,), 2.0))
            assert list(items) == ["y", "x"]
