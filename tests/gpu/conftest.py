# SPDX-License-Identifier: Apache-2.0
"""Tests that need a CUDA device. Without one they are collected, and skipped for one reason."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from gpu_device import DEVICE, MISSING

HERE = Path(__file__).parent
# For the package `conformance`.
sys.path.append(str(HERE.parent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.gpu)
        # What is not compiled runs eagerly, and says so. Where tests expect it, they say so too.
        item.add_marker(pytest.mark.filterwarnings("error:hostjit"), append=False)
        if MISSING:
            item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.fixture(params=["jit", "evaluator"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _full_precision() -> Iterator[None]:
    """Products and convolutions of float32 as exact as they can be, so that ways agree."""
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    yield
    torch.backends.cudnn.allow_tf32 = before[0]
    torch.set_float32_matmul_precision(before[1])


@pytest.fixture(autouse=True)
def _from_a_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def device() -> str:
    return DEVICE
