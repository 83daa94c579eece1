# SPDX-License-Identifier: Apache-2.0
"""Compares a captured program with eager PyTorch: results, their strides, effects on arguments."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch

from hostjit.capturing.capture import capture
from hostjit.capturing.program import CapturedProgram

__all__ = ["assert_same", "check", "clone_tree", "operators"]


def clone_tree(value: Any) -> Any:
    return copy.deepcopy(value)


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
        assert found.stride() == expected.stride()
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_same(list(found.values()), list(expected.values()))
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)
    elif dataclasses.is_dataclass(expected) and not isinstance(expected, type):
        assert_same(vars(found), vars(expected))
    else:
        assert found == expected


def check(target: Any, *args: Any, **kwargs: Any) -> CapturedProgram:
    """Capture, run on clones beside eager, compare results and effects on the arguments."""
    with torch.no_grad():
        program = capture(target, args, kwargs)
        ours, eager = clone_tree((args, kwargs)), clone_tree((args, kwargs))
        torch.manual_seed(1)
        expected = target(*eager[0], **eager[1])
        torch.manual_seed(1)
        found = program.run(*ours[0], **ours[1])
    assert_same(found, expected)
    assert_same(ours, eager)
    return program


def operators(program: CapturedProgram) -> list[str]:
    """The targets of a captured graph's calls, in order."""
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
