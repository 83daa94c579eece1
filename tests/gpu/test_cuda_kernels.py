# SPDX-License-Identifier: Apache-2.0
"""Generated CUDA kernels of every family and every operation on a GPU, against eager."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "python" / "kernels"
sys.path[:0] = [str(TESTS), str(TESTS / "cuda"), str(ROOT / "bench" / "gpu")]

from cuda_families import Family, families, placed, softmax  # noqa: E402
from cuda_launch import LaunchedKernel, LaunchedSteps  # noqa: E402
from cuda_operations import CASES, OperationCase  # noqa: E402

from hostjit.kernels.cuda import cuda_kernel  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def launched(family: Family) -> LaunchedKernel:
    return LaunchedKernel(cuda_kernel(family.kernel), family.kernel.symbols())


@pytest.mark.parametrize("family", families(), ids=lambda family: family.kernel.name)
def test_family(family: Family) -> None:
    torch.manual_seed(0)
    tensors = [tensor.cuda() for tensor in family.tensors()]
    expected = [tensor.cuda() for tensor in family.expected(tensors)]
    inputs = [placed(tensor, family.shift)[0] for tensor in tensors]
    outputs = [placed(torch.zeros_like(one), family.shift) for one in expected]
    around = [memory.view(torch.uint8).clone() for _, memory in outputs]
    kernel = launched(family)
    kernel(*inputs, *(found for found, _ in outputs), *family.sizes())
    again = [found.clone() for found, _ in outputs]
    kernel(*inputs, *(found for found, _ in outputs), *family.sizes())
    for one, (found, memory), before, right in zip(again, outputs, around, expected, strict=True):
        tolerance = {"rtol": 1e-4, "atol": 1e-4} if found.dtype is torch.float32 else {}
        torch.testing.assert_close(found, right, equal_nan=True, **tolerance)
        assert torch.equal(found.nan_to_num(), one.nan_to_num()), "it differs from call to call"
        found.zero_()
        assert torch.equal(memory.view(torch.uint8), before), "it writes beside its output"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operations(case: OperationCase) -> None:
    tensors = [tensor.cuda() for tensor in case.tensors()]
    found = [result.cuda() for result in case.results()]
    LaunchedKernel(cuda_kernel(case.kernel()))(*tensors, *found)
    case.check(tensors, found)


def test_an_output_may_be_an_input() -> None:
    family = next(family for family in families() if family.kernel.name == "double")
    x = torch.randn(1000, device="cuda")
    expected = 2 * x
    launched(family)(x, x)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("shape", [(1, 1 << 22), (3, 1 << 18), (1 << 16, 96)])
def test_long_rows_and_columns(shape: tuple[int, int]) -> None:
    x = torch.randn(shape, device="cuda")
    rows, columns = shape
    out, largest = torch.empty_like(x), torch.empty(rows, device="cuda")
    LaunchedSteps(softmax("softmax", shape, (columns, 1)))(x, out, largest)
    torch.testing.assert_close(out, x.softmax(1))
    assert torch.equal(largest, x.amax(1))
    out, largest = torch.empty_like(x), torch.empty(columns, device="cuda")
    across = softmax("across", (columns, rows), (1, columns))
    LaunchedSteps(across)(x, out, largest)
    torch.testing.assert_close(out, x.softmax(0))
    assert torch.equal(largest, x.amax(0))
