# SPDX-License-Identifier: Apache-2.0
"""Attributes of open numbers and sizes, and whether they are in a range."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

FUNCTIONS: dict[str, Callable[[Tensor, int, float], tuple[Any, ...]]] = {
    "real": lambda x, n, t: (x + 1, n.real, t.real),
    "of Gauss": lambda x, n, t: (x * n.real, n.imag, t.imag, repr(t.imag)),
    "fraction": lambda x, n, t: (x + n.denominator, n.numerator),
    "getter": lambda x, n, t: (x, *operator.attrgetter("real", "imag")(n)),
    "mapped": lambda x, n, t: (x, *map(operator.attrgetter("real"), (n, t))),
    "size": lambda x, n, t: (x, x.shape[0].real, (len(x) * 2).numerator),
    "of a result": lambda x, n, t: (x, (n + 1).real, (t * 2).real),
    "in a range": lambda x, n, t: (x, n in range(5), 2 in range(n), n not in range(3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture])
@pytest.mark.filterwarnings("ignore:hostjit")
def test_every_call_has_its_own(name: str, make: Callable[..., Any], runtime: str) -> None:
    function = FUNCTIONS[name]
    fast = make(function, runtime=runtime)
    for n, t in ((2, 1.5), (3, 0.25), (5, 2.5), (0, 7.0), (4, 3.0), (7, -1.5)):
        x = torch.ones(n + 2)
        (found, *numbers), (expected, *of_eager) = fast(x, n, t), function(x, n, t)
        torch.testing.assert_close(found, expected)
        assert repr(numbers) == repr(of_eager)
