# SPDX-License-Identifier: Apache-2.0
"""Runs a recorded function beside the same function run eagerly, and compares all there is."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.testing import assert_close

import hostjit

__all__ = ["assert_same", "check"]


def check(
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    *,
    recordings: int | None = 1,
    runtimes: Sequence[str] = ("jit", "evaluator"),
    **options: Any,
) -> Any:
    """Compare results, arguments and random generators after each call.

    `recordings`: how many there have to be in the end; None for a function that runs eagerly.
    Returns the captured function of the last runtime.
    """
    for runtime in runtimes:
        fast = hostjit.capture(function, runtime=runtime, **options)
        for number, args in enumerate(calls):
            given, expected_args = copy.deepcopy(args), copy.deepcopy(args)
            torch.manual_seed(number)
            expected = function(*expected_args)
            after = torch.get_rng_state()
            torch.manual_seed(number)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore" if recordings is None else "error")
                found = fast(*given)
            assert torch.equal(torch.get_rng_state(), after)
            assert_same(found, expected)
            assert_same(given, expected_args)
        if recordings is None:
            assert fast.captured is None
        else:
            assert fast.captured is not None
            assert len(fast.specializations) == recordings
    return fast


def assert_same(found: Any, expected: Any) -> None:
    """Compare containers of tensors and Python values: types, values, strides, gradients."""
    assert type(found) is type(expected)
    if isinstance(found, torch.Tensor):
        assert_close(found, expected, rtol=2e-5, atol=2e-6, equal_nan=True)
        assert found.stride() == expected.stride()
        assert found.requires_grad == expected.requires_grad
    elif isinstance(found, (tuple, list)):
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)
    elif isinstance(found, dict):
        assert list(found) == list(expected)
        for key in found:
            assert_same(found[key], expected[key])
    else:
        assert found == expected or found is expected
