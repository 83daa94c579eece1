# SPDX-License-Identifier: Apache-2.0
"""Inference with seeds, by both runtimes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture(params=["jit", "evaluator"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)
