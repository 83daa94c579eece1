# SPDX-License-Identifier: Apache-2.0
"""Every operation of the table against eager, on special values, for every type."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from mcjit import TORCH_DTYPES, CompiledKernel
from special_values import pair, special

from hostjit.kernels import OPERATIONS, DType, KernelBuilder, result_dtype

Reference = Callable[..., torch.Tensor]


def words(text: str) -> list[str]:
    return text.split()


def widen(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


UNARY: dict[str, Reference] = {
    name: getattr(torch, name)
    for name in words(
        "neg abs reciprocal square sqrt rsqrt floor ceil trunc round frac signbit isnan isinf "
        "isfinite bitwise_not logical_not sigmoid relu exp exp2 expm1 log log1p log2 log10 sin cos "
        "tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sign"
    )
}
# Eager's vectorised gelu answers NaN for inf, its scalar one inf: compare one by one.
UNARY |= {
    "silu": F.silu,
    "log_sigmoid": F.logsigmoid,
    "gelu": lambda x: torch.cat([F.gelu(element) for element in x.split(1)]),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu6": F.relu6,
    "mish": F.mish,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
}
BINARY: dict[str, Reference] = {
    name: getattr(torch, name)
    for name in words(
        "add sub mul fmod remainder maximum minimum fmax fmin copysign eq ne lt le gt ge "
        "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor heaviside atan2 "
        "pow hypot"
    )
}
BINARY |= {
    "div": torch.true_divide,
    # Eager's vectorised form rounds a half before it truncates, its scalar form does not.
    "div_trunc": lambda x, y: torch.div(widen(x), widen(y), rounding_mode="trunc"),
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
}
INTEGER_DIVISIONS = {"fmod", "remainder", "div_trunc", "div_floor"}

# Operation, constant operands after the first, reference.
PARAMETRIC: list[tuple[str, tuple[float, ...], Reference]] = [
    ("clamp", (-2.0, 3.0), lambda x: x.clamp(-2.0, 3.0)),
    ("clamp", (3.0, -2.0), lambda x: x.clamp(3.0, -2.0)),
    ("leaky_relu", (0.01,), lambda x: F.leaky_relu(x, 0.01)),
    ("elu", (1.5, 1.0, 1.0), lambda x: F.elu(x, 1.5)),
    ("elu", (1.6732632423543772, 1.0507009873554805, 1.0), F.selu),
    ("softplus", (2.0, 20.0), lambda x: F.softplus(x, 2.0, 20.0)),
    ("threshold", (0.5, -7.0), lambda x: F.threshold(x, 0.5, -7.0)),
    ("nan_to_num", (1.0, 2.0, 3.0), lambda x: x.nan_to_num(1.0, 2.0, 3.0)),
    ("lerp", (2.0, 0.25), lambda x: x.lerp(torch.full_like(x, 2.0), 0.25)),
    ("lerp", (2.0, 0.75), lambda x: x.lerp(torch.full_like(x, 2.0), 0.75)),
    ("multiply_add", (2.0, 3.0), lambda x: x * 2 + 3),
    ("addcmul", (2.0, 3.0, 0.5), lambda x: x.addcmul(x * 0 + 2, x * 0 + 3, value=0.5)),
    ("addcdiv", (2.0, 3.0, 0.5), lambda x: x.addcdiv(x * 0 + 2, x * 0 + 3, value=0.5)),
]

HALVES = (DType.F16, DType.BF16)


def element_types(name: str) -> list[DType]:
    """The types to test an operation on: those of the table, and the halves with `f32`."""
    dtypes = OPERATIONS[name].dtypes
    return [*dtypes, *(HALVES if DType.F32 in dtypes else ())]


def run(name: str, dtype: DType, tensors: list[torch.Tensor], *numbers: float) -> torch.Tensor:
    """Compute `name` on 1-D tensors of one type and constants by a kernel."""
    size = tensors[0].numel()
    builder = KernelBuilder("kernel", (size,))
    values = [builder.load(builder.input(dtype), (1,)) for _ in tensors]
    values += [builder.constant(dtype, number) for number in numbers]
    result = result_dtype(name, tuple(builder.dtype(value) for value in values))
    result = dtype if result is dtype.register else result
    builder.store(builder.output(result), builder.apply(name, *values), (1,))
    out = torch.empty(size, dtype=TORCH_DTYPES[result])
    CompiledKernel(builder.build())(*tensors, out)
    return out


def expect(actual: torch.Tensor, reference: Reference, *tensors: torch.Tensor) -> None:
    try:
        expected = reference(*tensors)
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"eager has no such operation: {error}")
    torch.testing.assert_close(actual, expected.to(actual.dtype), equal_nan=True)


def cases(names: dict[str, Reference]) -> list[tuple[str, DType]]:
    return [(name, dtype) for name in names for dtype in element_types(name)]


@pytest.mark.parametrize(("name", "dtype"), cases(UNARY))
def test_unary(name: str, dtype: DType) -> None:
    x = special(TORCH_DTYPES[dtype])
    expect(run(name, dtype, [x]), UNARY[name], x)


@pytest.mark.parametrize(("name", "dtype"), cases(BINARY))
def test_binary(name: str, dtype: DType) -> None:
    x, y = pair(TORCH_DTYPES[dtype])
    if name in INTEGER_DIVISIONS and dtype.is_integer:
        # Eager raises for zero and traps for the minimum divided by -1.
        keep = (y != 0) & (y != -1)
        x, y = x[keep], y[keep]
    expect(run(name, dtype, [x, y]), BINARY[name], x, y)


@pytest.mark.parametrize(("name", "numbers", "reference"), PARAMETRIC)
@pytest.mark.parametrize("dtype", [DType.F64, DType.F32, *HALVES])
def test_parametric(
    name: str, numbers: tuple[float, ...], reference: Reference, dtype: DType
) -> None:
    x = special(TORCH_DTYPES[dtype])
    if name.startswith("addc"):
        x = x[x.isfinite()]
    expect(run(name, dtype, [x], *numbers), reference, x)


@pytest.mark.parametrize("dtype", OPERATIONS["where"].dtypes)
def test_where(dtype: DType) -> None:
    x, y = pair(TORCH_DTYPES[dtype])
    condition = torch.arange(x.numel()) % 3 == 0
    builder = KernelBuilder("kernel", (x.numel(),))
    values = [builder.load(builder.input(kind), (1,)) for kind in (DType.BOOL, dtype, dtype)]
    builder.store(builder.output(dtype), builder.apply("where", *values), (1,))
    out = torch.empty_like(x)
    CompiledKernel(builder.build())(condition, x, y, out)
    torch.testing.assert_close(out, torch.where(condition, x, y), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", sorted(INTEGER_DIVISIONS))
@pytest.mark.parametrize("dtype", [DType.I64, DType.I32, DType.I16, DType.I8, DType.U8])
def test_integer_division_is_defined_for_every_operand(name: str, dtype: DType) -> None:
    x, y = pair(TORCH_DTYPES[dtype])
    out = run(name, dtype, [x, y])
    assert out.shape == x.shape
    by_minus_one = (y == -1) if dtype.is_signed else torch.zeros_like(y, dtype=torch.bool)
    expected = -x if name.startswith("div") else torch.zeros_like(x)
    torch.testing.assert_close(out[by_minus_one], expected[by_minus_one])


def test_every_operation_is_tested() -> None:
    tested = set(UNARY) | set(BINARY) | {name for name, _, _ in PARAMETRIC} | {"where"}
    assert tested == set(OPERATIONS)
