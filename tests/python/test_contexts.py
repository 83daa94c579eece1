# SPDX-License-Identifier: Apache-2.0
"""Contexts and settings inside of a compiled function: results are eager's, and so is what stays.

Whatever a call does, the thread's state afterwards is what an eager call would have left.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from state_of_threads import (
    COMPILERS,
    assert_same,
    same_state_afterwards,
    state,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

import hostjit

__all__ = ["same_state_afterwards"]

pytestmark = pytest.mark.usefixtures("same_state_afterwards")


def wrong_out(x: torch.Tensor) -> Any:
    torch.add(x, 1, out=torch.empty(3, 4, dtype=torch.int32))
    return x


def wrong_write(x: torch.Tensor) -> Any:
    x.expand(2, 3, 4).add_(1)
    return x


def overlapping_copy(x: torch.Tensor) -> Any:
    x[1:].copy_(x[:-1])
    return x


def raising(x: torch.Tensor) -> Any:
    y = x * 2
    raise ValueError(str(y.shape))


def lazy(x: torch.Tensor) -> Any:
    return torch.complex(x, x).conj()


def sparse(x: torch.Tensor) -> Any:
    return x.to_sparse()


CONTEXTS: dict[str, Callable[[], Any]] = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.float16),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "attention": lambda: sdpa_kernel(SDPBackend.MATH),
    "inference": torch.inference_mode,
    "no grad": torch.no_grad,
    "grad": torch.enable_grad,
}
FAILING = [wrong_out, wrong_write, overlapping_copy, raising, lazy, sparse]


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("function", FAILING)
def test_contexts_are_left_when_capture_fails_or_eager_raises(
    function: Callable[..., Any], context: str, compiler: str, needs_grad: bool
) -> None:
    def body(x: torch.Tensor) -> Any:
        with CONTEXTS[context]():
            return function(x * 1)

    compiled = COMPILERS[compiler](body)
    before = state()
    for _ in range(2):
        x = torch.arange(12.0).reshape(3, 4).requires_grad_(needs_grad)
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            compiled(x)
        assert state() == before


def grad_off(x: torch.Tensor) -> Any:
    torch.set_grad_enabled(False)
    return x * 2


def grad_off_in_between(x: torch.Tensor) -> Any:
    y = x * 2
    torch.set_grad_enabled(False)
    return y, x * 3


def grad_toggled(x: torch.Tensor) -> Any:
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y, x * 3


def autocast_on(x: torch.Tensor) -> Any:
    torch.set_autocast_enabled("cpu", True)
    return x @ x.t()


def autocast_dtype(x: torch.Tensor) -> Any:
    torch.set_autocast_dtype("cpu", torch.float16)
    return x * 2


def attention_settings(x: torch.Tensor) -> Any:
    torch.backends.cuda.enable_flash_sdp(False)
    return x * 2


def matmul_precision(x: torch.Tensor) -> Any:
    torch.set_float32_matmul_precision("high")
    return x @ x.t()


SETTINGS = [
    grad_off,
    grad_off_in_between,
    grad_toggled,
    autocast_on,
    autocast_dtype,
    attention_settings,
    matmul_precision,
]


@contextlib.contextmanager
def settings_put_back() -> Iterator[None]:
    dtype, precision = torch.get_autocast_dtype("cpu"), torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_grad_enabled(True)
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_dtype("cpu", dtype)
        torch.backends.cuda.enable_flash_sdp(True)
        torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("function", SETTINGS)
def test_settings_last_as_in_eager_mode(
    function: Callable[..., Any], compiler: str, needs_grad: bool
) -> None:
    if compiler == "backend" and function is autocast_on:
        pytest.skip("Dynamo switches autocast back after the graph, whatever the backend")

    def outcome(run: Callable[..., Any]) -> Any:
        x = torch.arange(12.0).reshape(3, 4).requires_grad_(needs_grad)
        with settings_put_back():
            return run(x), state()

    compiled = COMPILERS[compiler](function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            (found, found_state), (expected, expected_state) = outcome(compiled), outcome(function)
            assert_same(found, expected)
            assert found_state == expected_state


def test_the_dtype_of_autocast_for_cuda_is_part_of_the_state() -> None:
    @hostjit.compile
    def convert(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.get_autocast_dtype("cuda"))

    before = torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        for dtype in (torch.float16, torch.bfloat16, torch.float16):
            torch.set_autocast_dtype("cuda", dtype)
            assert convert(torch.ones(2)).dtype is dtype
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", before)
