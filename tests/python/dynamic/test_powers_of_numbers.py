# SPDX-License-Identifier: Apache-2.0
"""Powers of ints that vary, and how many bits these have: Python computes them at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

# Dynamo does not follow `1 << n` of an open int before: there is a program for each.
SHIFTS = torch.__version__ >= (2, 12)

OF_INTS: dict[str, Callable[[Tensor, int], Any]] = {
    "scaled": lambda x, n: x * 2**n,
    "divided": lambda x, n: x / 2**n,
    "padded": lambda x, n: torch.nn.functional.pad(x, (0, 2**n)) * 2,
    "reshaped": lambda x, n: x.repeat(2**n).reshape(2**n, -1) * 2,
    "returned": lambda x, n: (x + 1, 3**n),
    "bits": lambda x, n: x * n.bit_length(),
    "next_power": lambda x, n: torch.nn.functional.pad(x, (0, 1 << (n - 1).bit_length())) * 2,
    "bits_returned": lambda x, n: (x + 1, n.bit_length()),
}


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("name", OF_INTS)
def test_one_program_for_all_ints(name: str, runtime: str) -> None:
    function = OF_INTS[name]
    fast = hostjit.compile(function, runtime=runtime)
    x = torch.randn(6)
    for n in (3, 4, 2, 5, 9, 7):
        assert_close(fast(x, n), function(x, n), rtol=0, atol=0)
    if name != "next_power" or SHIFTS:
        assert len(fast.specializations) == 2


def test_sizes_are_exponents_and_have_bits() -> None:
    def function(x: Tensor) -> Tensor:
        rows = x.shape[0]
        whole = torch.nn.functional.pad(x, (0, 0, 0, (1 << (rows - 1).bit_length()) - rows))
        result: Tensor = whole / 2**rows
        return result

    fast = hostjit.compile(function)
    for rows in (5, 6, 9, 8, 17):
        x = torch.randn(rows, 3)
        assert_close(fast(x), function(x), rtol=0, atol=0)
    assert len(fast.specializations) == 2 or not SHIFTS


def test_other_types_and_long_ints_are_as_in_eager_mode() -> None:
    scaled, returned = (hostjit.compile(OF_INTS[name]) for name in ("scaled", "returned"))
    x = torch.randn(6)
    for n in (3, 4, -1, 0, -3, 40, 62, 5):
        assert_close(scaled(x, n), OF_INTS["scaled"](x, n), rtol=0, atol=0)
        found, expected = returned(x, n)[1], 3**n
        assert found == expected
        assert type(found) is type(expected)
    with pytest.raises(OverflowError):
        scaled(x, 70)
    assert returned(x, 100)[1] == 3**100
