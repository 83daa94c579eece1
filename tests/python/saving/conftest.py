# SPDX-License-Identifier: Apache-2.0
"""Seeds, and no gradients unless a test asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield
