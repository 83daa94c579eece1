# SPDX-License-Identifier: Apache-2.0
"""What on_mismatch="raise" says of calls that differ in more than their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import hostjit

weight = torch.nn.Parameter(torch.ones(2))
buffer = torch.ones(2)


@pytest.fixture(autouse=True)
def fresh() -> None:
    weight.grad = None
    buffer.fill_(1.0)


def _leaf() -> torch.Tensor:
    return torch.ones(2).requires_grad_()


def _with_gradient() -> torch.Tensor:
    leaf = _leaf()
    leaf.grad = torch.ones(2)
    return leaf


def _assert_raises(
    function: Callable[..., Any],
    call: Callable[[Any], object],
    other: Callable[[Any], object],
    text: str,
) -> None:
    """Record `call` of the captured function, which has to refuse `other` until it is as before."""
    strict = hostjit.capture(function, on_mismatch="raise")
    call(strict)
    call(strict)
    call(strict)
    assert len(strict.specializations) == 1
    for _ in range(2):
        with pytest.raises(hostjit.MismatchError) as error:
            other(strict)
        assert text in str(error.value)
        assert "\n" not in str(error.value)
    assert len(strict.specializations) == 1


def test_a_gradient_that_is_gone() -> None:
    def step(x: torch.Tensor) -> None:
        (weight * x).sum().backward()

    def without_gradient(strict: Any) -> None:
        weight.grad = None
        strict(torch.ones(2))

    text = "test_recorded_mismatches.weight': .grad expected a tensor, found None"
    _assert_raises(step, lambda strict: strict(torch.ones(2)), without_gradient, text)


def test_a_gradient_of_an_argument() -> None:
    def step(pair: Any) -> Any:
        before = pair["x"][0].grad
        pair["x"][0].square().sum().backward()
        return 0 if before is None else 1

    text = "argument 'pair'['x'][0]: .grad expected None, found a tensor"
    _assert_raises(
        step,
        lambda strict: strict({"x": [_leaf()]}),
        lambda strict: strict({"x": [_with_gradient()]}),
        text,
    )


def test_strides_of_a_gradient() -> None:
    weight.grad = torch.zeros(4)[::2]

    def step(x: torch.Tensor) -> None:
        weight.grad.add_(x)  # type: ignore[union-attr]

    def with_other_strides(strict: Any) -> None:
        weight.grad = torch.zeros(2)
        strict(torch.ones(2))

    text = "weight': strides expected [2], found [1]"
    _assert_raises(step, lambda strict: strict(torch.ones(2)), with_other_strides, text)


def test_a_mode() -> None:
    def call(strict: Any) -> None:
        with torch.no_grad():
            strict(torch.ones(2))

    text = "the mode 'grad': expected False, found True"
    _assert_raises(lambda x: x * 2, call, lambda strict: strict(torch.ones(2)), text)


def test_memory_that_is_shared() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return buffer.add_(x) * 2

    text = "which of its tensors are one, or share memory, is not as it was"
    call = lambda strict: strict(torch.ones(2))  # noqa: E731
    _assert_raises(step, call, lambda strict: strict(buffer), text)


def test_views_that_overlap_where_one_is_written() -> None:
    def double_first(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + y

    def overlapping(strict: Any) -> None:
        whole = torch.arange(5.0)
        strict(whole[:4], whole[1:])

    _assert_raises(
        double_first,
        lambda strict: strict(torch.ones(4), torch.ones(4)),
        overlapping,
        "share memory",
    )


def test_an_argument_without_data_is_named() -> None:
    strict = hostjit.capture(torch.sin, on_mismatch="raise")
    for _ in range(3):
        strict(torch.ones(2))
    with pytest.raises(hostjit.CaptureError, match="a meta tensor, which has no data"):
        strict(torch.ones(2, device="meta"))


def test_printing_a_tensor_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    def show(x: torch.Tensor) -> torch.Tensor:
        print(x)
        return x + 1

    strict = hostjit.capture(show, on_read="raise", fallback=False)
    strict(torch.ones(2))
    with pytest.raises(hostjit.CaptureError, match="reads data of a tensor"):
        strict(torch.ones(2))
    assert "tensor([1., 1.])" in capsys.readouterr().out
