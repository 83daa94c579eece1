# SPDX-License-Identifier: Apache-2.0
"""Operators that put tensors together, against eager, without calls of ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

import hostjit

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]

CASES: dict[str, Case] = {
    "cat rows": (lambda x, y: torch.cat([x, y]), ((2, 3), (4, 3))),
    "cat columns": (lambda x, y: torch.cat([x, y, x], -1), ((2, 3), (2, 5))),
    "cat of one": (lambda x: torch.cat([x]), ((2, 3),)),
    "cat with no elements": (lambda x, y: torch.cat([x, y, x]), ((2, 3), (0,))),
    "cat of nothing": (lambda x: torch.cat([x, x]), ((0, 3),)),
    "cat transposed": (lambda x, y: torch.cat([x.t(), y], 1), ((3, 2), (2, 4))),
    "cat of a kernel's results": (lambda x, y: torch.cat([x + 1, y * 2]) - 1, ((2, 3), (4, 3))),
    "cat channels last": (
        lambda x: torch.cat([x.contiguous(memory_format=torch.channels_last)] * 2, 1),
        ((2, 3, 4, 5),),
    ),
    "stack": (lambda x, y: torch.stack([x, y]), ((2, 3), (2, 3))),
    "stack last": (lambda x, y: torch.stack([x, y.expand(2, 3)], -1), ((2, 3), (1, 3))),
    "stack of scalars": (lambda x, y: torch.stack([x, y]), ((), ())),
    "pad": (lambda x: functional.pad(x, (1, 2), value=-1.5), ((2, 3),)),
    "pad two dims": (lambda x: functional.pad(x, (1, 0, 0, 2)), ((2, 3, 4),)),
    "pad by less than nothing": (lambda x: functional.pad(x, (-1, 2, 1, -1)), ((4, 5),)),
    "pad nothing": (lambda x: functional.pad(x, (2, 1), value=3.0), ((2, 0),)),
    "slice_scatter": (lambda x, y: torch.slice_scatter(x, y, 1, 1, -1, 2), ((3, 6), (3, 2))),
    "slice_scatter from the end": (lambda x, y: torch.slice_scatter(x, y, 0, -2), ((5, 2), (2, 2))),
    "slice_scatter of nothing": (lambda x, y: torch.slice_scatter(x, y, 0, 9), ((5, 2), (0, 2))),
    "select_scatter": (lambda x, y: torch.select_scatter(x, y, -1, -2), ((2, 3), (2,))),
    "repeat": (lambda x: x.repeat(2, 3), ((2, 3),)),
    "repeat to more dims": (lambda x: x.repeat(2, 1, 3), ((3,),)),
    "repeat not at all": (lambda x: x.repeat(0, 2), ((2, 3),)),
    "roll": (lambda x: torch.roll(x, 2, 1), ((2, 5),)),
    "roll back": (lambda x: torch.roll(x, -7, 0), ((5, 2),)),
    "roll by nothing": (lambda x: torch.roll(x, 5, 0), ((5, 2),)),
}


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("name", CASES)
def test_copies(name: str, runtime: str) -> None:
    target, sizes = CASES[name]
    torch.manual_seed(0)
    inputs = [torch.randn(size) for size in sizes]
    fast = hostjit.compile(target, runtime=runtime)
    expected = target(*inputs)
    torch.testing.assert_close(fast(*inputs), expected, rtol=0, atol=0, check_stride=True)
    assert "aten_call" not in fast.host_ir()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.bfloat16, torch.complex64])
def test_other_types(dtype: torch.dtype) -> None:
    def together(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        padded = functional.pad(x, (0, 1), value=1)
        return torch.cat([x, y]), torch.stack([x, x.roll(1, 0)]), padded

    torch.manual_seed(0)
    x = torch.randint(0, 2, (2, 3)).to(dtype)
    y = torch.randint(0, 9, (1, 3), dtype=torch.int8)
    torch.testing.assert_close(hostjit.compile(together)(x, y), together(x, y))


@pytest.mark.parametrize("side", [3, 4, 8, 33])
def test_transposed_operands_are_converted(side: int) -> None:
    def together(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scattered = torch.slice_scatter(y, x[:2], 0, 1, 3)
        return torch.cat([x, y]), torch.cat([y, x], 1), torch.stack([x, y]), scattered

    x = torch.randn(side, side).t()
    y = torch.randn(side, side, dtype=torch.float64)
    for left, right in ((x, y), (y.to(torch.int64).t(), x.contiguous()), (x.half(), y)):
        expected = together(left, right)
        torch.testing.assert_close(hostjit.compile(together)(left, right), expected)


def test_sizes_that_do_not_fit_raise_what_eager_raises() -> None:
    def join(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y])

    x, y = torch.randn(2, 3), torch.randn(2, 4)
    with pytest.raises(RuntimeError, match="must match"):
        hostjit.compile(join)(x, y)


@pytest.mark.parametrize("size", [0, 1])
def test_padding_by_less_than_there_is_raises_what_eager_raises(size: int) -> None:
    for pad in ((1, -1 - size), (-1 - size, 3), (-1, -size)):
        with pytest.raises(RuntimeError, match="length must be non-negative"):
            hostjit.compile(functional.pad, fallback=False)(torch.zeros(2, size), pad)


def test_a_result_does_not_share_memory_with_its_source() -> None:
    def join(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x])

    x = torch.zeros(2, 3)
    result = hostjit.compile(join)(x)
    result += 1
    assert not x.any()


def test_writes_of_inputs_are_copies() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        y.t().mul_(x)
        return x

    fast = hostjit.compile(function)
    x, y = torch.ones(3, 3), torch.arange(9.0).reshape(3, 3).t()
    version = x._version
    assert fast(x, y) is x
    assert x._version > version
    assert torch.equal(x, torch.full((3, 3), 2.0))
    assert torch.equal(y, 2 * torch.arange(9.0).reshape(3, 3).t())
    assert "aten_call" not in fast.host_ir()
    # Elements that are one in memory are left to eager's error.
    with (
        pytest.warns(UserWarning, match="runs eagerly"),
        pytest.raises(RuntimeError, match="single memory location"),
    ):
        hostjit.compile(lambda x: x.add_(1))(torch.ones(1).expand(3))


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.bool])
def test_operands_that_lie_across_are_copied_by_kernels(dtype: torch.dtype, runtime: str) -> None:
    torch.manual_seed(0)
    x = torch.randint(-2, 3, (3, 24, 40)).to(dtype)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        across = x.transpose(1, 2)
        return (
            torch.cat([across, across[:, 8:]], 1),
            torch.stack([across, across], -1),
            functional.pad(across, (2, 1, 0, 3)),
            across.repeat(2, 1, 3),
        )

    fast = hostjit.compile(f, runtime=runtime)
    for found, expected in zip(fast(x), f(x), strict=True):
        assert torch.equal(found, expected)
    assert "launch_kernel" in fast.host_ir()


def test_copies_keep_the_bits_of_what_is_no_number() -> None:
    bits = torch.arange(0x7F80 - 900, 0x7F80 + 60, dtype=torch.int16).view(24, 40)
    x = bits.view(torch.bfloat16)
    fast = hostjit.compile(lambda x: torch.cat([x.t(), x.t()]))
    assert torch.equal(fast(x).view(torch.int16), torch.cat([bits.t(), bits.t()]))
    assert "launch_kernel" in fast.host_ir()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("strides", [(2, 1), (0, 1), (8, 1)])
def test_tensors_without_contents_lie_as_asked(strides: tuple[int, int]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided((5, 5), strides, dtype=x.dtype)

    with torch.no_grad():
        found = hostjit.compile(function)(torch.ones(3))
    assert (found.shape, found.stride(), found.dtype) == ((5, 5), strides, torch.float32)
