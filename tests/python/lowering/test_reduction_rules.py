# SPDX-License-Identifier: Apache-2.0
"""Reductions against eager: values, types and strides, over all dims, layouts and dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from against_eager import RUNTIMES, check_compiled

import hostjit

# A variance of one element is asked for on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom")

Tensor = torch.Tensor
Dims = int | tuple[int, ...]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def over_many_dims(x: Tensor, dim: Dims, keepdim: bool) -> list[Tensor]:
    """What any number takes, over one or several dims."""
    return [
        x.sum(dim, keepdim=keepdim),
        x.sum(dim, keepdim=keepdim, dtype=torch.float32),
        x.amax(dim, keepdim=keepdim),
        x.amin(dim, keepdim=keepdim),
        torch.any(x > 1, dim, keepdim=keepdim),
        torch.all(x < 1, dim, keepdim=keepdim),
        torch.any(x, dim, keepdim=keepdim),
        x.count_nonzero(dim),
    ]


def over_one_dim(x: Tensor, dim: int, keepdim: bool) -> list[Tensor]:
    return [
        *x.max(dim, keepdim=keepdim),
        *x.min(dim, keepdim=keepdim),
        x.argmax(dim, keepdim=keepdim),
        x.argmin(dim, keepdim=keepdim),
        *torch.aminmax(x, dim=dim, keepdim=keepdim),
        x.prod(dim, keepdim=keepdim),
    ]


def over_everything(x: Tensor) -> list[Tensor]:
    return [x.sum(), x.prod(), x.max(), x.min(), x.argmax(), x.argmin(), x.any(), x.all()]


def of_floats(x: Tensor, dim: Dims, keepdim: bool) -> list[Tensor]:
    orders = (0, 1, 2, 3.5, math.inf, -math.inf)
    norm = torch.linalg.vector_norm
    return [
        x.mean(dim, keepdim=keepdim),
        x.nansum(dim, keepdim=keepdim),
        x.var(dim, keepdim=keepdim),
        x.std(dim, correction=0, keepdim=keepdim),
        *torch.var_mean(x, dim, correction=2, keepdim=keepdim),
        *torch.std_mean(x, dim, keepdim=keepdim),
        x.logsumexp(dim, keepdim=keepdim),
        *(norm(x, order, dim, keepdim) for order in orders),
        norm(x, 2, dim, keepdim, dtype=torch.float64 if x.dtype == torch.float64 else None),
    ]


def layouts(x: Tensor) -> list[Tensor]:
    """The same values with other strides."""
    wide = x.new_zeros((*x.shape[:-1], 2 * x.shape[-1]))[..., ::2]
    return [x, x.mT.contiguous().mT, wide.copy_(x), x.flatten()[:1].expand(x.shape)]


PLACES: list[tuple[tuple[int, ...], Dims]] = [
    ((7, 33), -1),
    ((7, 33), 0),
    ((3, 5, 16), (0, 2)),
    ((3, 5, 16), (-2, -1)),
    ((3, 5, 16), 1),
    ((4, 1, 6), 1),
    ((1, 1), -1),
    ((200, 70), 0),
]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("shape", "dim"), PLACES)
def test_floats(shape: tuple[int, ...], dim: Dims, dtype: torch.dtype) -> None:
    x = torch.randn(shape).to(dtype)
    keepdim = shape[0] == 3

    def function(x: Tensor) -> list[Tensor]:
        one = over_one_dim(x, dim, keepdim) if isinstance(dim, int) else over_everything(x)
        return [*over_many_dims(x, dim, keepdim), *of_floats(x, dim, keepdim), *one]

    # Eager multiplies in half precision; kernels round the result only.
    loose = {"rtol": 5e-3, "atol": 1e-4} if dtype is torch.float16 else {}
    check_compiled(function, x, **loose)
    if dtype is torch.float32:
        check_compiled(function, x, runtime="evaluator")
        for other in layouts(x)[1:]:
            check_compiled(function, other)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_integers(dim: int, dtype: torch.dtype) -> None:
    x = torch.randint(0, 2, (9, 40)) if dtype is torch.bool else torch.randint(-90, 90, (9, 40))
    x = x.to(dtype)

    def function(x: Tensor) -> list[Tensor]:
        if dtype is torch.bool:
            one = [*x.max(dim), *x.min(dim), x.prod(dim)]
            return [*over_many_dims(x, dim, False), *one, x.sum(), x.any(), x.all()]
        same = [x.sum(dim, dtype=dtype), x.prod(dim, dtype=dtype)]
        return [
            *over_many_dims(x, dim, True),
            *over_one_dim(x, dim, False),
            *over_everything(x),
            *same,
        ]

    for runtime in RUNTIMES:
        check_compiled(function, x, runtime=runtime)
    check_compiled(function, x.mT.contiguous().mT)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_special_values(dtype: torch.dtype, dim: int) -> None:
    x = torch.randn(64, 64)
    for row, values in enumerate(
        ([math.nan], [math.inf], [-math.inf], [math.inf, -math.inf], [math.nan, math.inf, math.nan])
    ):
        for number, value in enumerate(values):
            x[row, 20 + 7 * number] = value
            x[10 + 9 * number, 40 + row] = value
    x[50], x[:, 60], x[51] = -math.inf, math.inf, 0.0
    x = x.to(dtype)

    def function(x: Tensor) -> list[Tensor]:
        return [
            *over_many_dims(x, dim, False)[1:],
            *over_one_dim(x, dim, False),
            *of_floats(x, dim, True),
            x.softmax(dim),
            x.log_softmax(dim),
            x.max(),
            x.argmin(),
        ]

    check_compiled(function, x)


def test_the_first_of_equals_is_found() -> None:
    x = torch.randint(0, 3, (50, 37)).float()

    def function(x: Tensor) -> list[Tensor]:
        return [x.argmax(), x.argmin(), x.argmax(0), x.argmin(1), x.max(1)[1], x.min(0)[1]]

    check_compiled(function, x)
    # Rounding to the half type makes equals of what differs before.
    y = torch.linspace(1, 1.01, 1850).reshape(50, 37).to(torch.bfloat16)
    check_compiled(lambda y: [(y * 1.001).argmax(1), (y * 1.001).max(0)[1]], y)


def test_empty_operands() -> None:
    x = torch.randn(0, 4)
    check_compiled(lambda x: [x.sum(0), x.prod(0), x.any(0), x.all(), x.sum(1)], x, fused=False)
    with pytest.raises(IndexError, match="amax"):
        hostjit.compile(lambda x: x.amax(0))(x)
    with pytest.raises(IndexError, match="amax"):
        x.amax(0)


def test_numbers_without_dimensions() -> None:
    check_compiled(
        lambda x: [x.sum(), x.softmax(0), x.amax(0), x.argmax(), x.mean(), x.max(0)[1]],
        torch.tensor(3.0),
    )


@pytest.mark.parametrize("shape", [(1, 1 << 20), (40000, 5), (100, 300, 10), (3, 1000, 1000)])
def test_long_sums_are_as_accurate_as_eager(shape: tuple[int, ...]) -> None:
    """Values of one sign are the hard case: every rounding error has the same weight."""
    x = torch.rand(shape)
    for dim in range(len(shape)):
        if shape[dim] == 1:
            continue
        exact = x.double().sum(dim)
        actual = hostjit.compile(lambda x, dim=dim: x.sum(dim))(x).double()
        eager = ((x.sum(dim).double() - exact) / exact).abs().max().item()
        ours = ((actual - exact) / exact).abs().max().item()
        assert ours <= max(2 * eager, 3e-7), (dim, ours, eager)


def test_variance_far_from_zero() -> None:
    x = torch.randn(8, 3000) + 1e5
    actual = hostjit.compile(lambda x: x.var(1))(x)
    torch.testing.assert_close(actual.double(), x.double().var(1), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e-25, 3e18, 1e20])
def test_deviations_whose_squares_are_out_of_range(scale: float, dtype: torch.dtype) -> None:
    x = (torch.randn(5, 40) * scale).to(dtype)
    check_compiled(lambda x: [x.std(1), x.std(0), x.var(1), *torch.std_mean(x, 1)], x)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_have_no_deviations(dtype: torch.dtype, runtime: str) -> None:
    x = torch.arange(6).reshape(2, 3).to(dtype)
    for function in (torch.var, torch.std, lambda x: torch.var_mean(x, 0)):
        with pytest.raises(RuntimeError, match="only support floating point"):
            hostjit.compile(function, runtime=runtime)(x)


CASES: list[tuple[str, Callable[..., Any]]] = [
    ("producers", lambda x, y: (torch.sin(x) * y).sum(1)),
    ("consumers", lambda x, y: torch.relu(x.sum(1) * 2 + 1)),
    ("shift", lambda x, y: x - x.mean(1, keepdim=True)),
    ("shift0", lambda x, y: (x - x.mean(0)) * y),
    ("several", lambda x, y: (x * y - x.amax(1, keepdim=True)).exp().sum(1).log()),
    ("leaves", lambda x, y: ((x + y).exp(), (x + y).exp().sum(1))),
    ("views", lambda x, y: (x.reshape(4, 6, 10).sum(2) + 1).reshape(24)),
    ("transposed", lambda x, y: (x + 1).t().sum(0) * 2),
    ("expanded", lambda x, y: x.sum(1)[:, None].expand(6, 40) * y),
    ("crossing", lambda x, y: (x.sum(1).sum(0), x.sum(0).sum(0))),
    ("both ways", lambda x, y: x / x.sum(1, keepdim=True) / y.square().sum(0)),
    ("integers", lambda x, y: ((x > 0).sum(1), (x > y).float().mean(0))),
    ("slices", lambda x, y: x[1:, ::3].sum(1) + y[:5, 3]),
]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_neighbours(runtime: str) -> None:
    x, y = torch.randn(6, 40), torch.randn(6, 40)

    def function(x: Tensor, y: Tensor) -> list[Any]:
        return [case(x, y) for _, case in CASES]

    check_compiled(function, x, y, runtime=runtime, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "case"), CASES, ids=[name for name, _ in CASES])
def test_neighbours_one_by_one(name: str, case: Callable[..., Any]) -> None:
    check_compiled(case, torch.randn(6, 40), torch.randn(6, 40), rtol=1e-5, atol=1e-5)


def test_losses() -> None:
    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        f = torch.nn.functional
        return [f.mse_loss(x, y), f.mse_loss(x, y, reduction="sum"), f.l1_loss(x, y)]

    check_compiled(function, torch.randn(6, 40), torch.randn(6, 40))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_logsumexp_rounds_each_step_to_half_types(dtype: torch.dtype) -> None:
    x = (torch.randint(-24, 40, (2, 500)) / 8).to(dtype)
    assert torch.equal(hostjit.compile(torch.logsumexp)(x, 0), torch.logsumexp(x, 0))
