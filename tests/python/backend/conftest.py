# SPDX-License-Identifier: Apache-2.0
"""Makes the tests' own helpers importable; forgets what Dynamo compiled before every test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import hostjit  # noqa: F401  # registers the backend

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _from_the_beginning() -> Iterator[None]:
    torch.compiler.reset()
    torch.manual_seed(0)
    yield
    torch.compiler.reset()


@pytest.fixture(params=["jit", "evaluator"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)
