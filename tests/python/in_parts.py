# SPDX-License-Identifier: Apache-2.0
"""Counts what is traced, and compares calls that run in parts with eager ones."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch._dynamo import convert_frame
from torch.testing import assert_close

import hostjit
from hostjit.capturing import capture as capture_module

__all__ = ["check", "counted_captures"]


@contextlib.contextmanager
def counted_captures() -> Iterator[list[int]]:
    """Count what is traced: calls for parts of their own, and frames that Dynamo looks at."""
    count = [0]
    capture = capture_module.capture
    compile_frame = convert_frame.compile_frame

    def counted(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return capture(*args, **kwargs)

    def counted_frame(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return compile_frame(*args, **kwargs)

    with (
        mock.patch.object(capture_module, "capture", counted),
        mock.patch.object(convert_frame, "compile_frame", counted_frame),
    ):
        yield count


def check(function: Callable[..., Any], *calls: tuple[Any, ...], settled: int = 3) -> Any:
    """Compare compiled and eager calls; after some rounds nothing may be traced any more."""
    fast = hostjit.compile(function)
    for round_number in range(settled + 2):
        with counted_captures() as count:
            for args in calls:
                given, expected_args = copy.deepcopy(args), copy.deepcopy(args)
                torch.manual_seed(round_number)
                expected = function(*expected_args)
                torch.manual_seed(round_number)
                found = fast(*given)
                assert_close(found, expected)
                assert_close(given, expected_args)
        if round_number >= settled:
            assert count[0] == 0
    return fast
