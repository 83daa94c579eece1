# SPDX-License-Identifier: Apache-2.0
"""Operators on complex tensors become kernels on their real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from against_eager import RUNTIMES, check_compiled
from torch import Tensor

import hostjit

Function = Callable[[Tensor, Tensor], Any]

DTYPES = (torch.complex64, torch.complex128)
_INF, _NAN = float("inf"), float("nan")
_SPECIAL = (0.0, -0.0, 1.0, -1.5, _INF, -_INF, _NAN, 3e38, 1e-38, 1e-45, 100.0, -200.0, 89.0)

ARITHMETIC: dict[str, Function] = {
    "product": lambda a, b: a * b,
    "product_with_complex_number": lambda a, b: a * (2 - 1j),
    "product_with_number": lambda a, b: a * 2.5,
    "product_with_real_tensor": lambda a, b: a * b.real,
    "product_of_real_tensor": lambda a, b: b.imag * a,
    "real_tensor_times_complex_number": lambda a, b: a.real * 1j + b,
    "sum_of_two": lambda a, b: a + b,
    "sum_with_real_tensor": lambda a, b: a + b.real,
    "scaled_sum": lambda a, b: torch.add(a, b, alpha=2),
    "turned_sum": lambda a, b: torch.add(a, b, alpha=1j),
    "difference": lambda a, b: a - b,
    "difference_from_number": lambda a, b: 1 - a,
    "difference_from_complex_number": lambda a, b: 1j - a,
    "negative": lambda a, b: -a,
    "quotient": lambda a, b: a / b,
    "quotient_by_number": lambda a, b: a / 2.0,
    "quotient_by_complex_number": lambda a, b: a / (3 - 4j),
    "quotient_by_zero": lambda a, b: a / 0.0,
    "quotient_by_real_tensor": lambda a, b: a / b.real,
    "quotient_of_number": lambda a, b: 1 / a,
    "quotient_of_real_tensor": lambda a, b: b.real / a,
    "reciprocal": lambda a, b: a.reciprocal(),
    "square": lambda a, b: a.square(),
    "second_power": lambda a, b: a**2,
    "third_power": lambda a, b: a**3,
    "to_double": lambda a, b: a.real.to(torch.complex128) * b,
    "to_float": lambda a, b: (a * b).to(torch.complex64),
    "mixed": lambda a, b: a * b.to(torch.complex128),
}
FUNCTIONS: dict[str, Function] = {
    "abs": lambda a, b: a.abs(),
    "angle": lambda a, b: a.angle(),
    "exp": lambda a, b: a.exp(),
    "log": lambda a, b: a.log(),
    "sqrt": lambda a, b: a.sqrt(),
    "polar": lambda a, b: torch.polar(a.real, b.imag),
    "conjugate": lambda a, b: a.conj() * b,
    "imaginary_part_of_conjugate": lambda a, b: a.conj().imag * 2,
    "equal": lambda a, b: (a == b) | (a == a),
    "equal_to_number": lambda a, b: a == 1.0,
    "unequal": lambda a, b: a != b,
    "where": lambda a, b: torch.where(a.real > 0, a, b),
    "where_number": lambda a, b: torch.where(a.real > 0, a, 1.0),
    "masked_fill": lambda a, b: a.masked_fill(b.real > 0, 2j),
    "sum": lambda a, b: a.sum(),
    "sums_of_products": lambda a, b: (a * b).sum(0),
    "mean": lambda a, b: a.mean(),
    "means_that_keep_a_dim": lambda a, b: a.mean(1, keepdim=True),
}
LAYOUTS: dict[str, Function] = {
    "turned": lambda a, b: a.t() * b.t(),
    "part_of_turned_product": lambda a, b: (a * b).t()[2:5] + 1,
    "expanded": lambda a, b: (a * b).unsqueeze(0).expand(2, 13, 13) * a,
    "every_second": lambda a, b: (a * b).view(-1)[::2] * 3,
    "reshaped": lambda a, b: (a.t() * b.t()).reshape(-1) + a.reshape(-1),
    "broadcast": lambda a, b: a[0] * b[:, :1],
    "without_dims": lambda a, b: a[0, 0] * b[0],
    "without_elements": lambda a, b: a[:0] * b[:0],
    "diagonal": lambda a, b: (a * b).diagonal() * 2,
    "contiguous": lambda a, b: (a.t() * b.t()).contiguous(),
    "real_parts": lambda a, b: (a * b).real + (a * b).imag,
    "pairs": lambda a, b: torch.view_as_real(a * b) * 2,
    "of_pairs": lambda a, b: torch.view_as_complex(torch.stack([a.real, b.real], -1)) * b,
    "put_together": lambda a, b: torch.complex(a.real, b.imag) * 2,
    "filled": lambda a, b: torch.full((13,), 1 + 2j, dtype=a.dtype) * a + torch.zeros_like(b),
    "in_place": lambda a, b: a.clone().mul_(b).add_(1),
    "several_results": lambda a, b: (a * b, (a + b).abs(), a * b + 1),
    "stacked": lambda a, b: torch.stack([a * 2, b]),
}


def random(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(13, 13, dtype=dtype, generator=generator) for _ in range(2))
    return a, b


def special(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    numbers = [complex(real, imaginary) for real in _SPECIAL for imaginary in _SPECIAL]
    a = torch.tensor(numbers, dtype=dtype)
    return a.reshape(13, 13), a.flip(0).roll(5).reshape(13, 13)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*ARITHMETIC, *FUNCTIONS, *LAYOUTS])
def test_kernels(name: str, dtype: torch.dtype, runtime: str) -> None:
    function = {**ARITHMETIC, **FUNCTIONS, **LAYOUTS}[name]
    check_compiled(function, *random(dtype), runtime=runtime)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*ARITHMETIC, *FUNCTIONS])
def test_infinities_and_zeros(name: str, dtype: torch.dtype) -> None:
    """Part by part: a complex number is no NaN where one of its parts is."""
    function = {**ARITHMETIC, **FUNCTIONS}[name]

    def parts(a: Tensor, b: Tensor) -> Tensor:
        result: Tensor = function(a, b)
        return torch.view_as_real(result) if result.is_complex() else result

    a, b = special(dtype)
    compiled = hostjit.compile(parts)
    torch.testing.assert_close(compiled(a, b), parts(a, b), equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_logarithms_of_magnitudes_near_one(dtype: torch.dtype) -> None:
    a, _ = random(dtype)
    a = a / a.abs()
    found, exact = hostjit.compile(torch.log)(a).real, a.to(torch.complex128).log().real
    resolution = torch.finfo(dtype).resolution
    assert (found - exact).abs().max() < resolution


OPERATORS: dict[str, Function] = {
    "transforms": lambda a, b: torch.fft.ifft(torch.fft.fft(a * 2) * b) + 1,
    "matrices": lambda a, b: (a * 2) @ (b + 1) * 2,
    "sorted_out": lambda a, b: (a * b)[torch.tensor([0, 3])] * 2,
    "added_up": lambda a, b: (a * b).cumsum(0) * 2,
    "sines": lambda a, b: (a * b).sin() * 2,
    "rolled": lambda a, b: (a * 2).roll(1, 0) * b,
    "unbound": lambda a, b: [x * 2 for x in (a * b).unbind(0)][:3],
    "strided": lambda a, b: (a * b).as_strided((3, 2), (2, 1), 1) + 1,
}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_that_take_the_whole(name: str, dtype: torch.dtype, runtime: str) -> None:
    check_compiled(OPERATORS[name], *random(dtype), runtime=runtime, fused=False)


def test_a_kernel_writes_both_parts_where_they_are() -> None:
    compiled = hostjit.compile(lambda a, b: (a * b + 1, (a - b).conj().clone()))
    a, b = random(torch.complex64)
    compiled(a, b)
    program = compiled.host_ir()
    assert "copy(" not in program
    assert program.count("launch_kernel") == 1


def test_rotary_embeddings() -> None:
    """As Llama's authors have written them."""

    def rotated(x: Tensor, angles: Tensor) -> Tensor:
        turns = torch.polar(torch.ones_like(angles), angles)
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2)

    check_compiled(rotated, torch.randn(2, 3, 8), torch.randn(3, 4))


@pytest.mark.parametrize("through", ["hostjit", "torch"])
def test_gradients(through: str) -> None:
    def function(a: Tensor, x: Tensor) -> Tensor:
        response = (1j * x * a).exp() / (1 + a.abs())
        return (torch.fft.fft(response) * a.conj()).real.square().sum()

    compiled = (
        hostjit.compile(function)
        if through == "hostjit"
        else torch.compile(function, backend="hostjit")
    )
    a, x = torch.randn(5, dtype=torch.complex64), torch.randn(5)
    for _ in range(2):
        gradients = []
        for called in (compiled, function):
            inputs = [value.clone().requires_grad_() for value in (a, x)]
            gradients.append(torch.autograd.grad(called(*inputs), inputs))
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_any_size(runtime: str) -> None:
    def function(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return (a * b + a.conj()) / 2, (a - b).abs().sum(-1)

    compiled = hostjit.compile(function, runtime=runtime)
    for size in (5, 9, 17, 1, 33, 0):
        a, b = (torch.randn(3, size, dtype=torch.complex64) for _ in range(2))
        torch.testing.assert_close(compiled(a, b), function(a, b), check_stride=True)


def test_arguments_that_are_written() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        a.mul_(b).add_(1j)
        b.real.add_(1)
        return a.abs() + b.imag

    compiled = hostjit.compile(function)
    for _ in range(3):
        a, b = torch.randn(7, dtype=torch.complex64), torch.randn(7, dtype=torch.complex64)
        given = a.clone(), b.clone()
        torch.testing.assert_close(compiled(a, b), function(*given))
        torch.testing.assert_close((a, b), given)


def test_conjugated_arguments() -> None:
    compiled = hostjit.compile(lambda a, b: a * b + 1)
    a, b = random(torch.complex64)
    for left in (a, a.conj(), a.imag.neg() + 0j):
        torch.testing.assert_close(compiled(left, b), left * b + 1)


def test_loops() -> None:
    def function(x: Tensor, count: Tensor) -> Tensor:
        def step(i: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, z * z / (1 + z.abs()) + 0.1j

        result: Tensor = torch.while_loop(lambda i, z: i < count, step, (torch.tensor(0), x))[1]
        return result

    compiled = hostjit.compile(function)
    x = torch.randn(5, dtype=torch.complex64)
    for count in (0, 1, 7):
        torch.testing.assert_close(
            compiled(x, torch.tensor(count)), function(x, torch.tensor(count))
        )
