# SPDX-License-Identifier: Apache-2.0
"""Every operation of the table as CUDA C++, on special values of every type, against eager."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from emulation import EmulatedKernel, emulated
from mcjit import TORCH_DTYPES
from special_values import pair, special
from test_operations import BINARY, INTEGER_DIVISIONS, PARAMETRIC, UNARY, element_types, widen

from hostjit.kernels import OPERATIONS, DType, KernelBuilder, PointwiseKernel, result_dtype
from hostjit.kernels.cuda.c_text import prelude

# One kernel for a type and a kind of operations; each operation has an output of its own.
Table = list[tuple[str, tuple[float, ...], int]]
TABLES: dict[str, Table] = {
    "unary": [(name, (), 1) for name in UNARY],
    "binary": [(name, (), 2) for name in BINARY],
    "parametric": [(name, numbers, 1) for name, numbers, _ in PARAMETRIC],
    "where": [("where", (), 3)],
}


def exact_fmod(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Sleef's, which eager has on CPUs, is NaN where the quotient overflows."""
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.fmod(widen(x).numpy(), widen(y).numpy()))


def exact_remainder(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    modulus = exact_fmod(x, y)
    signs_differ = (modulus != 0) & ((y < 0) != (modulus < 0))
    return torch.where(signs_differ, modulus + widen(y), modulus)


EXACT = {"fmod": exact_fmod, "remainder": exact_remainder}
CASES = [(kind, dtype) for kind in TABLES for dtype in DType]


def entries(kind: str, dtype: DType) -> list[int]:
    """The places in a table of what is defined for a type."""
    if kind == "parametric" and dtype is DType.U8:
        return []  # their numbers are negative
    return [n for n, (name, *_) in enumerate(TABLES[kind]) if dtype in element_types(name)]


def result_type(name: str, dtype: DType, arity: int) -> DType:
    register = dtype.register
    operands = (DType.BOOL, register, register) if name == "where" else (register,) * arity
    result = result_dtype(name, operands)
    return dtype if result is register else result


def build(kind: str, dtype: DType, size: int) -> PointwiseKernel:
    builder = KernelBuilder(f"{kind}_{dtype.value}", (size,))
    kinds = [DType.BOOL, dtype, dtype] if kind == "where" else [dtype] * (1 + (kind == "binary"))
    loaded = [builder.load(builder.input(one), (1,)) for one in kinds]
    for place in entries(kind, dtype):
        name, numbers, _ = TABLES[kind][place]
        values = loaded + [builder.constant(dtype, number) for number in numbers]
        output = builder.output(result_type(name, dtype, len(values)))
        builder.store(output, builder.apply(name, *values), (1,))
    return builder.build()


@pytest.fixture(scope="module")
def kernels() -> dict[tuple[str, DType], EmulatedKernel]:
    built = {case: build(*case, operands(*case)[0].numel()) for case in CASES}
    some = {case: kernel for case, kernel in built.items() if kernel.outputs}
    return dict(zip(some, emulated(some.values()), strict=True))


def operands(kind: str, dtype: DType) -> list[torch.Tensor]:
    if kind in ("unary", "parametric"):
        return [special(TORCH_DTYPES[dtype])]
    x, y = pair(TORCH_DTYPES[dtype])
    condition = torch.arange(x.numel()) % 3 == 0
    return [condition, x, y] if kind == "where" else [x, y]


@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_operations(
    kind: str, dtype: DType, kernels: dict[tuple[str, DType], EmulatedKernel]
) -> None:
    places = entries(kind, dtype)
    if not places:
        pytest.skip("no operation of this kind is defined for this type")
    tensors = operands(kind, dtype)
    found = []
    for place in places:
        name, numbers, arity = TABLES[kind][place]
        type_ = result_type(name, dtype, arity + len(numbers))
        found.append(torch.empty_like(tensors[-1], dtype=TORCH_DTYPES[type_]))
    kernels[kind, dtype](*tensors, *found)
    for place, actual in zip(places, found, strict=True):
        check(kind, place, dtype, tensors, actual)


def check(
    kind: str, place: int, dtype: DType, tensors: list[torch.Tensor], actual: torch.Tensor
) -> None:
    name = TABLES[kind][place][0]
    references = {"unary": UNARY, "binary": BINARY | EXACT, "where": {"where": torch.where}}
    reference = PARAMETRIC[place][2] if kind == "parametric" else references[kind][name]
    if name in INTEGER_DIVISIONS and dtype.is_integer:
        keep = (tensors[1] != 0) & (tensors[1] != -1)
        tensors, actual = [tensor[keep] for tensor in tensors], actual[keep]
    if name.startswith("addc"):
        keep = tensors[0].isfinite()
        tensors, actual = [tensors[0][keep]], actual[keep]
    try:
        expected = reference(*tensors)
    except (RuntimeError, NotImplementedError):
        return  # eager has no such operation
    tolerance = {"rtol": 1e-3, "atol": 1e-5} if dtype is DType.F16 else {}
    torch.testing.assert_close(
        actual,
        expected.to(actual.dtype),
        equal_nan=True,
        msg=lambda text: f"{name}: {text}",
        **tolerance,
    )


def test_every_operation_is_written() -> None:
    written = set(re.findall(r"\bop_(\w+)\(", prelude()))
    functions = set(re.findall(r"HOSTJIT_FUNCTION(?:_OF_TWO)?\((\w+)\)", prelude()))
    rounding = set(re.findall(r"HOSTJIT_ROUNDING\((\w+), ", prelude()))
    assert set(OPERATIONS) <= written | functions | rounding
