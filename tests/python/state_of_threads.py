# SPDX-License-Identifier: Apache-2.0
"""What calls leave of the thread's state, beside eager's."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import hostjit

COMPILERS: dict[str, Callable[..., Any]] = {
    "compile": hostjit.compile,
    "backend": lambda function: torch.compile(function, backend="hostjit"),
}
AMBIENT: dict[str, Callable[[], Any]] = {
    "grad": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
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


@pytest.fixture
def same_state_afterwards() -> Iterator[None]:
    torch.compiler.reset()
    before = state()
    yield
    assert state() == before
    x = torch.ones(3, requires_grad=True)
    (x + 1).sum().backward()  # the dispatcher works, and autograd records
    assert x.grad is not None and x.grad.tolist() == [1, 1, 1]


def facts(result: Any) -> Any:
    return pytree.tree_map(lambda x: (x.is_inference(), x.requires_grad, x.dtype), result)


def assert_same(found: Any, expected: Any) -> None:
    assert facts(found) == facts(expected)
    torch.testing.assert_close(found, expected)


def same_as_eager(
    compiler: str, function: Callable[..., Any], ambient: str = "grad", says: str | None = None
) -> None:
    """Compare two calls, what they return and what they leave behind, and what is said of them."""
    compiled = COMPILERS[compiler](function)
    for _ in range(2):
        with AMBIENT[ambient](), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            x = torch.arange(12.0).reshape(3, 4)
            before = state()
            expected = function(x.clone())
            assert state() == before
            assert_same(compiled(x.clone()), expected)
            assert state() == before
        texts = [str(warning.message) for warning in said if "hostjit" in str(warning.message)]
        assert len(texts) == (says is not None), texts
        assert all(says is not None and says in text for text in texts), texts
        says = None  # once
