# SPDX-License-Identifier: Apache-2.0
"""Compares calls of one compiled function with eager ones, and counts its programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

import hostjit

__all__ = ["check"]


def check(
    function: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    programs: int,
    **options: Any,
) -> hostjit.CompiledFunction:
    """Compare calls with eager's; returns the compiled function, which has that many programs."""
    compiled = hostjit.compile(function, **options)
    for call in calls:
        found, expected = compiled(*call), function(*call)
        torch.testing.assert_close(found, expected, check_stride=True)
    assert len(compiled.specializations) == programs
    return compiled
