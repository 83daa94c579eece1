# SPDX-License-Identifier: Apache-2.0
"""What NumPy makes of sizes and numbers that vary, and tensors are computed with: one program."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

np = pytest.importorskip("numpy")

OF_SIZES: dict[str, Callable[[Tensor], Any]] = {
    "scaled": lambda x: x / np.sqrt(x.shape[0]),
    "on_the_left": lambda x: np.log(x.shape[0]) * x + np.float64(2.5),
    "chain": lambda x: x * (np.sqrt(2.0 / x.shape[0]) + 1) ** 2,
    "of_known": lambda x: x * (np.sqrt(2.0) * x.shape[0] - np.float64(0.1)),
    "divided": lambda x: x * (1 / np.sqrt(x.shape[0])) / (np.log(x.shape[0]) % 2),
    "rows": lambda x: x[: int(np.ceil(x.shape[0] / 2))] * 2,
    "root_of_rows": lambda x: x[: int(np.floor(np.sqrt(x.shape[0])))] * 2,
    "item": lambda x: x + np.exp2(x.shape[0]).item(),
    "least": lambda x: x * np.minimum(x.shape[0], 8),
    "rounded": lambda x: x * np.round(x.shape[0] / 3) + np.around(len(x) / 7, 1),
    "absolute": lambda x: x * np.abs(x.shape[0] - 7) + np.abs(len(x) / 2 - 6),
    "product": lambda x: x / np.prod(x.shape) + np.prod([len(x), 2]) * x,
    "flat": lambda x: x.reshape(int(np.prod(x.shape))) * 2,
    "sum": lambda x: x / np.sum(x.shape),
}
OF_FLOATS: dict[str, Callable[[Tensor, float], Any]] = {
    "decay": lambda x, t: x * np.exp(-t),
    "wave": lambda x, t: x + np.sin(2 * np.pi * t / 100),
    "clipped": lambda x, t: x * np.clip(t / 5, 0.1, 1.0),
    "annealed": lambda x, t: x * np.maximum(0.05, 1.0 - t / 10),
    "single": lambda x, t: x * np.float32(t),
    "whole": lambda x, t: x * np.floor(t * 3),
}


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", OF_SIZES)
def test_functions_of_sizes(name: str, gradients: bool, runtime: str) -> None:
    function = OF_SIZES[name]
    fast = hostjit.compile(function, runtime=runtime)
    for rows in (5, 6, 9, 20, 7):
        x, y = (torch.randn(rows, 3, generator=torch.Generator().manual_seed(1)) for _ in range(2))
        with torch.set_grad_enabled(gradients):
            found = fast(x.requires_grad_(gradients))
            expected = function(y.requires_grad_(gradients))
            assert_close(found, expected)
            if gradients:
                found.sum().backward()
                expected.sum().backward()
                assert_close(x.grad, y.grad)
    assert len(fast.specializations) == 2


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", OF_FLOATS)
def test_functions_of_floats(name: str, dtype: torch.dtype, runtime: str) -> None:
    function = OF_FLOATS[name]
    fast = hostjit.compile(function, runtime=runtime)
    x = torch.linspace(0.1, 2, 9, dtype=dtype)
    for t in (0.0, 0.7, 1.3, 4.9, 12.0):
        assert_close(fast(x, t), function(x, t), rtol=0, atol=0)
    assert len(fast.specializations) == 2


@pytest.mark.filterwarnings("ignore:hostjit", "ignore:.*encountered:RuntimeWarning")
def test_what_is_not_finite_is_as_in_eager_mode() -> None:
    fast = hostjit.compile(lambda x, t: x * np.log(t))
    x = torch.ones(3)
    for t in (2.0, 3.0, 0.0, -1.0, 4.0, math.inf, 0.0):
        assert_close(fast(x, t), x * np.log(t), equal_nan=True)


def test_operators_are_numpys() -> None:
    """A division by zero gives infinity, and an int has 64 bits."""
    divided = hostjit.compile(lambda x, t: x / (np.float64(t) / 2))
    power = hostjit.compile(lambda x, n: x * np.power(3, n))
    x = torch.ones(3)
    with np.errstate(all="ignore"):
        for t in (2.0, 3.0, 0.0, 5.0):
            assert_close(divided(x, t), x / (np.float64(t) / 2))
        for n in (2, 3, 50, 5):
            assert_close(power(x, n), x * np.power(3, n))


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2, np.sqrt(x.shape[0])),
        lambda x: x if np.sqrt(x.shape[0]) > 2.5 else x + 1,
        lambda x: x.int() * np.sqrt(x.shape[0]),
        lambda x: x[0, 0] * np.sqrt(x.shape[0]),
        lambda x: x * np.float32(x.shape[0] / 3) * np.sqrt(np.float32(x.shape[0])),
        lambda x: torch.full((2,), np.sqrt(x.shape[0])),
    ],
)
def test_what_numpys_numbers_are_told_by_is_as_in_eager_mode(
    function: Callable[[Tensor], Any],
) -> None:
    fast = hostjit.compile(function)
    for rows in (5, 6, 9, 20, 7):
        x = torch.randn(rows, 3)
        found, expected = fast(x), function(x)
        assert_close(found, expected, rtol=0, atol=0)
        if isinstance(expected, tuple):
            assert type(found[1]) is type(expected[1])


def test_a_saved_program_asks_numpy(tmp_path: Path) -> None:
    fast = hostjit.compile(OF_SIZES["scaled"])
    fast(torch.ones(5, 3))
    fast(torch.ones(6, 3))
    file = tmp_path / "scaled.hostjit"
    hostjit.save(fast, file)
    loaded = hostjit.load(file)
    x = torch.randn(11, 3)
    assert_close(loaded(x), x / np.sqrt(11))
