# SPDX-License-Identifier: Apache-2.0
"""Results have the memory format of eager's where PyTorch's traces have another."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from strict_comparison import RUNTIMES, check
from torch import Tensor
from torch.nn import functional as F

import hostjit

LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "contiguous": lambda: torch.randn(2, 6, 4, 5),
    "channels last": lambda: torch.randn(2, 6, 4, 5).to(memory_format=torch.channels_last),
    "part of channels last": lambda: torch.randn(2, 4, 5, 8)[..., :6].permute(0, 3, 1, 2),
    "in 3d": lambda: torch.randn(2, 6, 3, 4, 5).to(memory_format=torch.channels_last_3d),
    "permuted": lambda: torch.randn(5, 4, 6, 2).permute(3, 2, 1, 0),
    "transposed": lambda: torch.randn(6, 2, 4, 5).transpose(0, 1),
    "every other": lambda: torch.randn(2, 6, 4, 10)[..., ::2],
}
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "roll": lambda x: x.roll(1, 2),
    "roll, flat": lambda x: x.roll(3),
    "roll, two dims": lambda x: x.roll((1, -6), (-2, 3)),
    "roll, one dim twice": lambda x: x.roll((1, 1), (3, 3)),
    "roll, one channel": lambda x: x.roll(1, 1),
    "roll by nothing": lambda x: x.roll(0, 1),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 3),
    "channel_shuffle, one group": lambda x: F.channel_shuffle(x, 1),
    "batch_norm of the batch": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(6), torch.ones(6)),
    "batch_norm with updates": lambda x: F.batch_norm(
        x, torch.zeros(6), torch.ones(6), training=True
    ),
    "rrelu": lambda x: F.rrelu(x, training=False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_have_the_strides_of_eager(name: str, layout: str) -> None:
    torch.manual_seed(0)
    check(FUNCTIONS[name], LAYOUTS[layout]())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_with_gradients(name: str) -> None:
    torch.manual_seed(0)
    function = FUNCTIONS[name]
    for layout in ("channels last", "permuted"):
        x = LAYOUTS[layout]()
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, expected = hostjit.compile(function, fallback=False)(ours), function(theirs)
        torch.testing.assert_close(found, expected)
        gradient = torch.randn_like(expected)
        found.backward(gradient)
        expected.backward(gradient)
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_rolls_at_any_size() -> None:
    torch.manual_seed(0)
    fast = hostjit.compile(lambda x: x.roll((1, 2), (2, 3)), dynamic=True, fallback=False)
    for batch in (2, 4):
        x = torch.randn(batch, 6, 4, 5).to(memory_format=torch.channels_last)
        torch.testing.assert_close(fast(x), x.roll((1, 2), (2, 3)), check_stride=True)


def test_random_slopes_are_those_of_eager() -> None:
    torch.manual_seed(0)
    x = LAYOUTS["permuted"]()

    def slopes(x: Tensor) -> Tensor:
        return F.rrelu(x, training=True)

    fast = hostjit.compile(slopes, fallback=False)
    with torch.no_grad():
        torch.manual_seed(1)
        expected = slopes(x)
        torch.manual_seed(1)
        torch.testing.assert_close(fast(x), expected, check_stride=True)


def test_rolls_and_shuffles_need_no_operator() -> None:
    torch.manual_seed(0)
    x = LAYOUTS["channels last"]()
    for name in ("roll", "roll, two dims", "channel_shuffle"):
        assert "aten_call" not in check(FUNCTIONS[name], x)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("pad", [(1, 2, 3, 0), (0, 0, 2, 2), (5, 5, 4, 4), (-1, 2, 0, -1), (2, 1)])
def test_circular_pad(pad: tuple[int, ...], runtime: str) -> None:
    torch.manual_seed(0)
    for x in (LAYOUTS["contiguous"](), LAYOUTS["channels last"]()):
        x = x if len(pad) == 4 else x[0]
        text = check(lambda x: F.pad(x, pad, mode="circular"), x, runtime=runtime)
        if min(pad) >= 0:
            assert "aten_call" not in text


def test_circular_pad_of_more_than_there_is() -> None:
    with pytest.raises(RuntimeError, match="wrapping around more than once"):
        hostjit.compile(lambda x: F.pad(x, (3, 0), mode="circular"))(torch.ones(1, 1, 2))


@pytest.mark.parametrize("function", [torch.linalg.svdvals, lambda x: torch.linalg.norm(x, 2)])
def test_singular_values_without_vectors(function: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 3)
    text = check(function, x)
    assert "arguments=[$0, false, false, none]" in text
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    hostjit.compile(function, fallback=False)(ours).sum().backward()
    function(theirs).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
