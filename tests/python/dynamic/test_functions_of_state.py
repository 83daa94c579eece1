# SPDX-License-Identifier: Apache-2.0
"""What functions do with an attribute that takes values of all kinds: always what eager does."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import hostjit

VALUES = (
    0.1,
    0.2,
    -0.0,
    0.0,
    5,
    7,
    True,
    2**40,
    2**31,
    math.inf,
    math.nan,
    -3,
    1e300,
    0.3,
    4,
    None,
)

FUNCTIONS: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "product": lambda x, v: x * v,
    "decision": lambda x, v: x * v if v > 0.15 else x - v,
    "equality": lambda x, v: x * 2 if v == 0.2 else x * 3,
    "truth": lambda x, v: x * 2 if v else x * 3,
    "square root": lambda x, v: x * math.sqrt(abs(v)),
    "whole": lambda x, v: x * int(v),
    "result": lambda x, v: (x * 2, v),
    "size": lambda x, v: x.new_ones(int(v) % 5 + 1) * v,
    "text": lambda x, v: (x + 1, f"{v}"),
    "quotient": lambda x, v: x / v,
    "power": lambda x, v: x.abs() ** v,
    "slice": lambda x, v: x[:v],
    "index": lambda x, v: x[v],
    "full": lambda x, v: torch.full((2,), v) + x[0],
    "tensor": lambda x, v: torch.tensor(v) + x[0],
    "comparison": lambda x, v: x > v,
    "clamp": lambda x, v: x.clamp(-abs(v), abs(v)),
    "remainder": lambda x, v: x * (v % 3) - x * (v // 2),
    "rounded": lambda x, v: x * round(v),
    "least": lambda x, v: x * min(v, 1) - max(v, -1),
    "of ints": lambda x, v: (x * 10).long() * v,
    "roll": lambda x, v: x.roll(v),
    "alpha": lambda x, v: torch.add(x, x, alpha=v),
    "filled": lambda x, v: x.masked_fill(x > 0, v),
}


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (
        TypeError,
        ValueError,
        RuntimeError,
        IndexError,
        OverflowError,
        ArithmeticError,
    ) as error:
        return type(error)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:hostjit")
def test_an_attribute(name: str) -> None:
    holder = types.SimpleNamespace(v=None)
    function = FUNCTIONS[name]

    def call(x: torch.Tensor) -> Any:
        return function(x, holder.v)

    with hostjit.knobs(enable="recompile_limit(64)"):
        compiled = hostjit.compile(call)
        x = torch.randn(6)
        for holder.v in VALUES:
            found, expected = outcome(compiled, x), outcome(call, x)
            if isinstance(expected, type):
                assert found is expected
                continue
            if isinstance(expected, tuple):
                assert repr(found[1]) == repr(expected[1])
                found, expected = found[0], expected[0]
            torch.testing.assert_close(found, expected, equal_nan=True)
