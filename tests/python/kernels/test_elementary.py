# SPDX-License-Identifier: Apache-2.0
"""Functions that kernels compute by arithmetic: errors in ulp, and no calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from exact_float64 import errors_in_ulp, has_wide_numbers, points
from mcjit import TORCH_DTYPES, CompiledKernel, host_features, optimised
from special_values import pair
from ulp import ulp_errors

from hostjit.kernels import DType, KernelBuilder, PointwiseKernel, llvm_ir
from hostjit.kernels.operation import FORMS, OPERATIONS

# Over every `f32`, bench/python/accuracy.py finds the same or slightly larger errors.
BOUNDS = {
    "exp": 1.0,
    "exp2": 1.0,
    "expm1": 1.0,
    "log": 1.0,
    "log1p": 1.0,
    "log2": 1.0,
    "log10": 1.0,
    "tanh": 1.0,
    "erf": 1.0,
    "sigmoid": 2.4,
    "silu": 2.5,
}
# Of `f64`: about eager's, but for exp, where eager has 0.53 and Sleef 0.85.
BOUNDS_64 = {"exp": 0.8, "log": 0.74, "tanh": 0.78, "sigmoid": 2.5, "silu": 2.5}
# What is added without fused multiplication and addition.
WITHOUT_FMA = {"log2": 0.9, "log10": 0.9}
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    name: getattr(torch, name) for name in BOUNDS if name != "silu"
}
FUNCTIONS["silu"] = F.silu

# Where a result is normal: the formulas lose digits of denormal ones, and eager's lose all.
ACTIVATION_BOUNDS = {"mish": 3.0, "log_sigmoid": 1.5}
STRIDE = 4099


def kernel(name: str, dtype: DType, size: int) -> PointwiseKernel:
    builder = KernelBuilder("kernel", (size,))
    operands = [builder.load(builder.input(dtype), (1,)) for _ in range(OPERATIONS[name].arity)]
    value = builder.apply(name, *operands)
    builder.store(builder.output(dtype), value, (1,))
    return builder.build()


def numbers() -> torch.Tensor:
    """Every 4099th `f32`, and the neighbourhoods of all powers of two, infinities and NaN.

    Between 1.32 and 1.4 it is every 7th: there logarithms round most.
    """
    spread = torch.arange(-(1 << 31), 1 << 31, STRIDE)
    powers = torch.arange(-256, 256).unsqueeze(1) << 23
    edges = (powers + torch.arange(-3, 4)).flatten().clamp(-(1 << 31), (1 << 31) - 1)
    logarithms = torch.arange(0x3FA8F5C3, 0x3FB33333, 7)
    return torch.cat([spread, edges, logarithms]).to(torch.int32).view(torch.float32)


@pytest.mark.parametrize("name", BOUNDS)
def test_error(name: str) -> None:
    x = numbers()
    out = torch.empty_like(x)
    CompiledKernel(kernel(name, DType.F32, x.numel()))(x, out)
    errors = ulp_errors(out, FUNCTIONS[name](x.double()))
    worst = int(errors.argmax())
    bound = BOUNDS[name] + (0.0 if "fma" in host_features() else WITHOUT_FMA.get(name, 0.1))
    assert float(errors[worst]) <= bound, f"{name}({float(x[worst])!r}) = {out[worst]}"


@pytest.mark.parametrize(("name", "function"), [("mish", F.mish), ("log_sigmoid", F.logsigmoid)])
def test_error_of_activations(name: str, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = numbers()
    x = x[(x > -87.0) & (x < 87.0)]
    out = torch.empty_like(x)
    CompiledKernel(kernel(name, DType.F32, x.numel()))(x, out)
    errors = ulp_errors(out, function(x.double()))
    assert float(errors.max()) <= ACTIVATION_BOUNDS[name], float(x[errors.argmax()])


@pytest.mark.parametrize(("above", "bound"), [(-1.0, 3.0), (-3.0, 20.0), (-5.5, 60.0)])
def test_error_of_gelu(above: float, bound: float) -> None:
    x = numbers()
    x = x[(x > above) & (x.abs() > 1e-37)]
    out = torch.empty_like(x)
    CompiledKernel(kernel("gelu", DType.F32, x.numel()))(x, out)
    exact = x.double() * torch.special.ndtr(x.double())
    errors = ulp_errors(out, exact)[x < torch.inf]
    assert float(errors.max()) <= bound, float(x[errors.argmax()])


def test_gelu_far_below_zero_and_at_infinity() -> None:
    x = torch.tensor([-5.59, -5.61, -8.0, -3e38, -torch.inf, torch.inf, torch.nan])
    out = torch.empty_like(x)
    CompiledKernel(kernel("gelu", DType.F32, x.numel()))(x, out)
    assert torch.allclose(out[:4], torch.zeros(4), rtol=0, atol=6.5e-8)
    expected = torch.tensor([torch.nan, torch.inf, torch.nan])
    torch.testing.assert_close(out[4:], expected, equal_nan=True)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_rounded_once(name: str, dtype: torch.dtype) -> None:
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    out = torch.empty_like(x)
    kernel_dtype = DType.BF16 if dtype is torch.bfloat16 else DType.F16
    CompiledKernel(kernel(name, kernel_dtype, x.numel()))(x, out)
    errors = ulp_errors(out, FUNCTIONS[name](x.double()))
    assert (
        float(errors.max())
        <= 0.5 + BOUNDS[name] * torch.finfo(torch.float32).eps / torch.finfo(dtype).eps
    )


@pytest.mark.skipif(not has_wide_numbers(), reason="a long double is a double here")
@pytest.mark.parametrize("name", BOUNDS_64)
def test_error_of_doubles(name: str) -> None:
    x = points(name, 1 << 18)
    out = torch.empty_like(x)
    CompiledKernel(kernel(name, DType.F64, x.numel()))(x, out)
    errors = errors_in_ulp(name, x, out)
    worst = int(errors.argmax())
    bound = BOUNDS_64[name] + (0.0 if "fma" in host_features() else 0.5)
    assert float(errors[worst]) <= bound, f"{name}({float(x[worst])!r}) = {out[worst]}"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, DType.F32) for name in BOUNDS), *((name, DType.F64) for name in BOUNDS_64)],
)
def test_lanes_and_rest_agree(name: str, dtype: DType) -> None:
    """An element's bits do not depend on its position in the vector."""
    x = torch.linspace(-4, 4, 4096, dtype=TORCH_DTYPES[dtype])
    whole, single = torch.empty_like(x), torch.empty_like(x)
    CompiledKernel(kernel(name, dtype, x.numel()))(x, whole)
    one = CompiledKernel(kernel(name, dtype, 1))
    for index in range(0, x.numel(), 37):
        one(x[index:], single[index:])
        parts = single[index : index + 1], whole[index : index + 1]
        assert torch.equal(*(part.view(torch.int32) for part in parts))


@pytest.mark.parametrize(
    ("dtype", "name"), [(dtype, name) for dtype in FORMS for name in sorted(FORMS[dtype])]
)
def test_no_call_remains(dtype: DType, name: str) -> None:
    text = str(optimised(llvm_ir(kernel(name, dtype, 4096))))
    calls = [line for line in text.splitlines() if " call " in line and "@llvm." not in line]
    assert calls == []
    element = {DType.F32: "float", DType.F64: "double"}[dtype]
    assert any(f"<{lanes} x {element}>" in text for lanes in (2, 4, 8, 16))


def test_every_form_is_measured() -> None:
    assert set(FORMS[DType.F32]) <= {*BOUNDS, "pow"}
    assert set(FORMS[DType.F64]) <= set(BOUNDS_64)


def assert_powers(x: torch.Tensor, y: torch.Tensor) -> None:
    """Eager's sign, infinity or NaN everywhere, and at most 0.6 ulp."""
    out = torch.empty_like(x)
    CompiledKernel(kernel("pow", DType.F32, x.numel()))(x, y, out)
    errors = ulp_errors(out, torch.pow(x.double(), y.double()))
    worst = int(errors.argmax())
    message = f"pow({float(x[worst])!r}, {float(y[worst])!r}) = {out[worst]}"
    assert float(errors[worst]) <= 0.6, message
    eager = torch.pow(x, y)
    same = (out == eager) & (out.signbit() == eager.signbit()) | (out.isnan() & eager.isnan())
    assert bool((same | (out.isfinite() & (out != 0))).all())


def test_power_of_special_values() -> None:
    x, y = pair(torch.float32)
    assert_powers(x, y)
    # Integers around those that an `f32` holds, odd and even, and the edges of overflow.
    exact = [
        2.0**23 - 0.5,
        2.0**23 + 1,
        2.0**24 - 1,
        2.0**24,
        2.0**25,
        127.0,
        128.0,
        -149.0,
        -150.0,
    ]
    near = [1.0 + 2.0**-23, 1.0 - 2.0**-24, 2.0, 0.5, 2.0**-149, 3.4e38]
    bases = torch.tensor([sign * number for sign in (1, -1) for number in near])
    exponents = torch.tensor([sign * number for sign in (1, -1) for number in exact])
    assert_powers(bases.repeat_interleave(len(exponents)), exponents.repeat(len(bases)))


def test_power_of_random_numbers() -> None:
    generator = torch.Generator().manual_seed(5)
    count = 1 << 18

    def bit_patterns() -> torch.Tensor:
        integers = torch.randint(-(1 << 31), 1 << 31, (count,), generator=generator)
        return integers.to(torch.int32).view(torch.float32)

    def normal() -> torch.Tensor:
        return torch.randn(count, generator=generator)

    assert_powers(bit_patterns(), bit_patterns())
    assert_powers(bit_patterns().abs(), normal())
    assert_powers(normal().abs(), normal() * 20)
    assert_powers(1.0 + normal() * 1e-4, normal() * 1e5)
    assert_powers(normal(), (normal() * 30).round())
