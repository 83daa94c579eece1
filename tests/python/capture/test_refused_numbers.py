# SPDX-License-Identifier: Apache-2.0
"""Numbers that eager refuses are eager's to refuse; those that it takes are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from no_warnings import no_warnings
from torch import Tensor
from torch.testing import assert_close

import hostjit

MANY = 1e300

REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "x - True": lambda x: x - True,
    "True - x": lambda x: True - x,
    "sub_": lambda x: x.clone().sub_(True),
    "bool - int": lambda x: (x > 0) - 1,
    "alpha of bool": lambda x: torch.add(x, x, alpha=True),
    "clamp": lambda x: x.clamp(max=MANY),
    "clamp_min": lambda x: x.clamp_min(-MANY),
    "fill_": lambda x: x.clone().fill_(MANY),
    "fill_ of half": lambda x: x.half().fill_(1e10),
    "fill_ with a complex number": lambda x: x.clone().fill_(1j),
    "fill_ of uint8": lambda x: x.byte().fill_(300),
    "where": lambda x: torch.where(x > 0, x, MANY),
    "masked_fill": lambda x: x.masked_fill(x > 0, MANY),
    "pad": lambda x: F.pad(x, (1, 1), value=MANY),
    "full": lambda x: x + torch.full((2, 2), MANY),
    "full_like": lambda x: torch.full_like(x, MANY),
    "alpha": lambda x: torch.add(x, x, alpha=MANY),
    "addmm": lambda x: torch.addmm(x, x, x, beta=MANY),
    "lerp": lambda x: x.lerp(x, MANY),
    "leaky_relu": lambda x: F.leaky_relu(x, MANY),
    "elu": lambda x: F.elu(x, MANY),
    "threshold": lambda x: F.threshold(x, 0.0, MANY),
}

TAKEN: dict[str, Callable[[Tensor], Any]] = {
    "x * 1e300": lambda x: x * MANY,
    "x + 1e300": lambda x: x + MANY,
    "half * 1e10": lambda x: x.half() * 1e10,
    "x > 1e300": lambda x: x > MANY,
    "x + True": lambda x: x + True,
    "x * True": lambda x: x * True,
    "masked_fill with inf": lambda x: x.masked_fill(x > 0, float("-inf")),
    "masked_fill with the least": lambda x: x.masked_fill(x > 0, torch.finfo(x.dtype).min),
    "full of bool": lambda x: torch.full_like(x, True),
    "fill_ of one": lambda x: x[:1, :1].half().fill_(1e10),
    "int8 > 1000": lambda x: x.to(torch.int8) > 1000,
    "bool * bool": lambda x: (x > 0) * True,
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("with_gradients", [False, True])
def test_what_eager_raises_is_raised(name: str, with_gradients: bool) -> None:
    function = REFUSED[name]
    x = torch.tensor([[1.5, -2.0], [3.25, 0.0]], requires_grad=with_gradients)
    with pytest.raises(RuntimeError) as expected:
        function(x)
    fast = hostjit.compile(function)
    for _ in range(2):
        with torch.set_grad_enabled(with_gradients), pytest.raises(RuntimeError) as raised:
            fast(x)
        assert str(raised.value) == str(expected.value)


@pytest.mark.parametrize("name", TAKEN)
def test_what_eager_takes_is_compiled(name: str) -> None:
    function = TAKEN[name]
    x = torch.tensor([[1.5, -2.0], [3.25, 0.0]])
    fast = hostjit.compile(function, fallback=False)
    with torch.no_grad(), no_warnings():
        assert_close(fast(x), function(x), equal_nan=True)


def test_asking_an_operator_moves_no_generator() -> None:
    torch.manual_seed(0)
    expected = torch.randint(2, 10, (3,)), F.rrelu(-torch.ones(2), 0.1, 0.2, True)
    torch.manual_seed(0)
    fast = hostjit.compile(
        lambda: (torch.randint(2, 10, (3,)), F.rrelu(-torch.ones(2), 0.1, 0.2, True))
    )
    assert_close(fast(), expected)


INTS = torch.arange(4)
TABLE = INTS.reshape(2, 2)
FACTORS: list[Callable[[float], Tensor]] = [
    lambda factor: torch.sub(INTS, INTS, alpha=factor),
    lambda factor: torch.sub(INTS, 2, alpha=factor),
    lambda factor: torch.add(INTS, INTS, alpha=factor),
    lambda factor: torch.add(INTS > 1, INTS > 1, alpha=factor),
    lambda factor: torch.rsub(INTS, INTS, alpha=factor),
    lambda factor: torch.rsub(INTS, 2, alpha=factor),
    lambda factor: INTS.clone().sub_(INTS, alpha=factor),
    lambda factor: INTS.clone().add_(2, alpha=factor),
    lambda factor: torch.sub(INTS, INTS, alpha=factor, out=torch.empty_like(INTS)),
    lambda factor: torch.addmm(TABLE, TABLE, TABLE, alpha=factor),
    lambda factor: TABLE.clone().addmm_(TABLE, TABLE, beta=factor),
    lambda factor: torch.addmv(INTS[:2], TABLE, INTS[:2], beta=factor),
    lambda factor: torch.addr(TABLE, INTS[:2], INTS[:2], alpha=factor),
    lambda factor: torch.addbmm(TABLE, TABLE[None], TABLE[None], alpha=factor),
    lambda factor: torch.baddbmm(TABLE[None], TABLE[None], TABLE[None], beta=factor),
    lambda factor: torch.sub(INTS, torch.ones(4), alpha=factor),
]


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("number", range(len(FACTORS)))
@pytest.mark.parametrize("is_argument", [False, True])
def test_factors_of_ints(number: int, is_argument: bool) -> None:
    function = FACTORS[number]
    called = hostjit.compile(function)
    for factor in (1.0, 1, 2.5, 1.0):
        held = hostjit.compile(lambda factor=factor: function(factor))
        for _ in range(2):
            fast = (lambda factor=factor: called(factor)) if is_argument else held
            try:
                expected = function(factor)
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    fast()
            else:
                assert_close(fast(), expected)
