# SPDX-License-Identifier: Apache-2.0
"""Contexts inside of a compiled function are left, whatever happens in them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import hostjit

COMPILERS: dict[str, Callable[..., Any]] = {
    "compile": hostjit.compile,
}


def state() -> dict[str, Any]:
    torch.autocast_increment_nesting()
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast dtype": torch.get_autocast_dtype("cpu"),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "autocast nesting": torch.autocast_decrement_nesting(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default dtype": torch.get_default_dtype(),
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "included": str(torch._C._dispatch_tls_local_include_set()),
        "excluded": str(torch._C._dispatch_tls_local_exclude_set()),
    }


@pytest.fixture(autouse=True)
def _same_state_afterwards() -> Iterator[None]:
    torch.compiler.reset()
    before = state()
    yield
    assert state() == before
    x = torch.ones(3, requires_grad=True)
    (x + 1).sum().backward()  # the dispatcher works, and autograd records
    assert x.grad is not None and x.grad.tolist() == [1, 1, 1]


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
