# SPDX-License-Identifier: Apache-2.0
"""Makes the comparison with eager importable; the runtimes to test with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "backend"))


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=["jit", "evaluator"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)
