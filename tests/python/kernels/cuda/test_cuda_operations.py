# SPDX-License-Identifier: Apache-2.0
"""Every operation of the table as CUDA C++, run on the CPU on special values of every type."""

from __future__ import annotations

import re

import pytest
from cuda_operations import CASES, OperationCase
from emulation import EmulatedKernel, emulated

from hostjit.kernels import OPERATIONS
from hostjit.kernels.cuda.c_text import prelude


@pytest.fixture(scope="module")
def kernels() -> dict[OperationCase, EmulatedKernel]:
    return dict(zip(CASES, emulated(case.kernel() for case in CASES), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operations(case: OperationCase, kernels: dict[OperationCase, EmulatedKernel]) -> None:
    tensors, found = case.tensors(), case.results()
    kernels[case](*tensors, *found)
    case.check(tensors, found)


def test_every_operation_is_written() -> None:
    written = set(re.findall(r"\bop_(\w+)\(", prelude()))
    for macro in ("FUNCTION", "FUNCTION_OF_TWO", "ROUNDING"):
        written.update(re.findall(rf"^HOSTJIT_{macro}\((\w+)", prelude(), re.MULTILINE))
    assert set(OPERATIONS) <= written
