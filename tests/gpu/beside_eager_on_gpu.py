# SPDX-License-Identifier: Apache-2.0
"""Compiled calls beside eager ones on the same device: all that a caller can see."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from gpu_device import random_state
from torch.utils._pytree import tree_flatten

__all__ = ["assert_same", "assert_same_calls", "outcome"]


def assert_same(found: Any, expected: Any, **tolerances: Any) -> None:
    """Compare structure, types, devices, strides and values; tolerances as of `assert_close`."""
    ours, structure = tree_flatten(found)
    eager, expected_structure = tree_flatten(expected)
    assert structure == expected_structure
    for a, b in zip(ours, eager, strict=True):
        assert type(a) is type(b)
        if isinstance(b, torch.Tensor):
            assert (a.device, a.stride()) == (b.device, b.stride())
            torch.testing.assert_close(a, b, equal_nan=True, **tolerances)
        else:
            assert a == b


def assert_same_calls(
    function: Callable[..., Any],
    compiled: Callable[..., Any],
    arguments: tuple[Any, ...],
    calls: int = 3,
    **tolerances: Any,
) -> None:
    """Call both on copies of the arguments from one seed, several times.

    The first call compiles, the next ones find what it made. Results, arguments afterwards and the
    state of the generator are compared.
    """
    torch.manual_seed(1)
    theirs = copy.deepcopy(arguments)
    expected = function(*theirs)
    state = random_state()
    for _ in range(calls):
        torch.manual_seed(1)
        ours = copy.deepcopy(arguments)
        found = compiled(*ours)
        assert_same(found, expected, **tolerances)
        assert_same(ours, theirs, **tolerances)
        assert torch.equal(random_state(), state)


def outcome(function: Callable[..., Any], *arguments: Any) -> tuple[str, str]:
    """Return the class and the first line of what a call raises, ("", "") without an exception."""
    try:
        function(*arguments)
    except Exception as error:
        return type(error).__name__, str(error).split("\n")[0]
    return "", ""
