# SPDX-License-Identifier: Apache-2.0
"""What goes wrong on a device raises what eager raises, leaks nothing and ends no process."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from beside_eager_on_gpu import assert_same, outcome
from gpu_device import DEVICE
from torch import Tensor

import hostjit

pytestmark = pytest.mark.skipif(DEVICE != "cuda", reason="CUDA's errors")

FAULT = """
import sys
import torch
import hostjit

def function(table, index):
    return table[index].relu() + 1

way = sys.argv[1]
call = function if way == "eager" else hostjit.compile(function, runtime=way)
table = torch.ones(4, 3, device="cuda")
good = torch.tensor([1, 2], device="cuda")
with torch.no_grad():
    for _ in range(2):
        call(table, good)
    try:
        call(table, good + 100)
        torch.cuda.synchronize()
    except Exception as error:
        print(type(error).__name__)
"""


def too_large(x: Tensor) -> Tensor:
    y = x * 2
    # More than any device has.
    z = torch.cumsum(x[:1].expand(1 << 46), 0)
    return y + z[0]


@torch.no_grad()
def test_out_of_memory_in_a_program(runtime: str) -> None:
    x = torch.ones(1 << 20, device="cuda")
    function = hostjit.compile(too_large, runtime=runtime)
    wanted, _ = outcome(too_large, x)
    assert wanted == "OutOfMemoryError"
    for _ in range(3):
        assert outcome(function, x)[0] == wanted
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        outcome(function, x)
    gc.collect()
    assert torch.cuda.memory_allocated() == before
    other = hostjit.compile(lambda x: x.exp() + 1, runtime=runtime)
    assert_same(other(x), x.exp() + 1)


@torch.no_grad()
def test_memory_that_runs_out_and_comes_back(runtime: str) -> None:
    """The same program works again when there is room."""

    def function(x: Tensor) -> Tensor:
        return (x @ x).softmax(-1).cumsum(0)

    x = torch.rand(2048, 2048, device="cuda")
    expected = function(x)
    compiled = hostjit.compile(function, runtime=runtime)
    assert_same(compiled(x), expected, rtol=1e-4, atol=1e-4)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    # The limit counts what is reserved: nothing more can be.
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    try:
        hoard = []
        while True:
            try:
                hoard.append(torch.empty(1 << 20, device="cuda"))
            except torch.OutOfMemoryError:
                break
        wanted, _ = outcome(function, x)
        found, _ = outcome(compiled, x)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert wanted == "OutOfMemoryError"
    # What a frame already holds, a call need not ask for.
    assert found in (wanted, "")
    del hoard
    assert_same(compiled(x), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_nothing_stays_allocated_after_calls(runtime: str) -> None:
    compiled = hostjit.compile(lambda x: (x @ x).relu().sum(0), runtime=runtime)
    x = torch.rand(512, 512, device="cuda")
    for _ in range(3):
        compiled(x)
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(100):
        compiled(x)
    gc.collect()
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("size", [3, 5])
@torch.no_grad()
def test_shapes_that_do_not_fit(size: int, runtime: str) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return (x + 1) @ y

    compiled = hostjit.compile(function, runtime=runtime)
    x, y = torch.ones(2, 4, device="cuda"), torch.ones(size, 2, device="cuda")
    assert outcome(compiled, x, y) == outcome(function, x, y) != ("", "")
    assert_same(compiled(x, y.new_ones(4, 2)), function(x, y.new_ones(4, 2)))


@pytest.mark.parametrize("way", ["jit", "evaluator"])
def test_a_kernel_that_faults(way: str) -> None:
    """A device-side assertion ends CUDA for the process, and not the process."""
    python = str(Path(hostjit.__file__).parents[1])

    def said(way: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {python!r})\n{FAULT}", way],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said(way) == said("eager") != ""
