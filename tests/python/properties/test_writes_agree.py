# SPDX-License-Identifier: Apache-2.0
"""Random programs that write through views, draw numbers and compute with sizes, beside eager.

Compared are values, strides, shared memory, what became of the arguments, gradients and the state
of the generator, at changing sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from writing_programs import WritingProgram

import hostjit

WAYS: dict[str, Callable[..., Any]] = {
    "compile": hostjit.compile,
    "any size": functools.partial(hostjit.compile, dynamic=True, runtime="evaluator"),
    "capture": hostjit.capture,
}
SIZES = (5, 5, 5, 7, 4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("needs_gradients", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_eager(seed: int, way: str, needs_gradients: bool) -> None:
    # Each way has programs of its own.
    program = WritingProgram(100 * seed + 10 * [*WAYS].index(way), needs_gradients)
    eager, fast = program.function(), WAYS[way](program.function())
    for call, size in enumerate(SIZES):
        expected, found = (
            _observe(function, program.arguments(size, call), needs_gradients)
            for function in (eager, fast)
        )
        message = f"call {call} of\n{program.text}"
        if isinstance(expected, Exception) or isinstance(found, Exception):
            assert isinstance(found, type(expected)), f"{found!r} at {message}"
            continue
        for ours, theirs in zip(found, expected, strict=True):
            assert_close(
                ours, theirs, equal_nan=True, msg=lambda text, message=message: text + message
            )
            assert _strides(ours) == _strides(theirs), message
        assert _sharing(found) == _sharing(expected), message


def _observe(
    function: Callable[..., Any], arguments: tuple[Tensor, Tensor, int], needs_gradients: bool
) -> list[Tensor | None] | Exception:
    """Return all that can be seen of a call, or how it fails."""
    torch.manual_seed(0)
    a, b, _ = arguments
    try:
        with torch.set_grad_enabled(needs_gradients):
            results = function(*arguments)
        state = torch.get_rng_state()
        [x.grad_fn for x in results]  # eager may say only now that a write took a view's history
        losses = [(x * torch.arange(x.numel()).reshape(x.shape)).sum() for x in results]
        losses = [loss for loss in losses if loss.requires_grad]
        if losses:
            torch.autograd.backward(losses)
    except (RuntimeError, IndexError) as error:
        return error
    return [*results, a, b, a.grad, state]


def _strides(x: Tensor | None) -> list[int]:
    if x is None or x.numel() == 0:
        return []
    return [step for size, step in zip(x.shape, x.stride(), strict=True) if size > 1]


def _sharing(tensors: Sequence[Tensor | None]) -> list[int]:
    """For each tensor the first one whose memory it has."""
    memory = [
        x.untyped_storage().data_ptr() if x is not None and x.numel() else -index - 1
        for index, x in enumerate(tensors)
    ]
    return [memory.index(address) for address in memory]
