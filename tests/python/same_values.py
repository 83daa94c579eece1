# SPDX-License-Identifier: Apache-2.0
"""Whether what two runs of one program leave is the same, containers all the way down."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["assert_same"]


def assert_same(found: Any, expected: Any) -> None:
    """Compare types, keys, texts and numbers exactly, and tensors closely."""
    assert type(found) is type(expected)
    if isinstance(expected, Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_same(list(found.values()), list(expected.values()))
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected
