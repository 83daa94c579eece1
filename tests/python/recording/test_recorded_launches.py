# SPDX-License-Identifier: Apache-2.0
"""Launches of users' kernels in recordings, with fake CUDA tensors."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import hostjit
from hostjit import _C
from hostjit.capturing.functional.trace import trace_functional
from hostjit.launching.launch_operator import LAUNCH
from hostjit.lowering.lower import lower
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.reach.state import State
from hostjit.recording.running.function_watcher import FunctionWatcher

CUBIN = b"\x7fELF\x02\x01\x01\x00\xffbytes"
KERNEL = hostjit.kernel(CUBIN, "k", parameters=["ptr", "ptr", "f32", "i32"], writes=[0], block=32)
SOURCE = """
extern "C" __global__ void k(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
"""
# As triton.compiler.CompiledKernel; its parameters end with two pointers that nobody passes.
COMPILED = SimpleNamespace(
    asm={"cubin": CUBIN},
    metadata=SimpleNamespace(
        name="k", num_warps=1, shared=0, global_scratch_size=0, profile_scratch_size=0
    ),
)


def _record(function: Callable[..., Any], sizes: list[int]) -> tuple[Recorder, torch.fx.Graph]:
    """Record a call with fake CUDA tensors of these sizes; return it and the functional graph."""
    mode = FakeTensorMode()
    with mode:
        leaves = [torch.empty(size, device="cuda:0") for size in sizes]
    recorder = Recorder(leaves, State(), "guard")
    with torch.no_grad(), mode, FunctionWatcher(recorder), recorder:
        result = function(*leaves)
    assert not recorder.problem
    recorder.graph.output((recorder.node_of(result),))
    module = torch.fx.GraphModule(torch.nn.Module(), recorder.graph)
    traced = trace_functional(module, [source.tensor for source in recorder.sources], mode)
    return recorder, traced.graph_module.graph


def _launches(program: _C.Program) -> list[Any]:
    return [op for op in program.ops if op.name == "launch_kernel"]


@pytest.mark.parametrize(
    ("code", "language", "count"),
    [
        (SOURCE, "ptx", 4),
        (CUBIN, "cubin", 4),
        (0x7F00, "cuda_function", 4),
        (COMPILED, "cubin", 6),
    ],
)
def test_a_launch_is_a_part_of_the_program(code: Any, language: str, count: int) -> None:
    words = ["ptr", "ptr", "f32", "i32"]
    kernel = hostjit.kernel(code, "k", parameters=words, writes=[0], block=32)

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(kernel, lambda y, x, a, n: (n + 31) // 32, (y, x, 2.0, x.numel()))
        return y

    recorder, graph = _record(call, [128])
    assert any(node.target is LAUNCH for node in recorder.graph.nodes)
    program = lower(graph, "launch")
    program.verify()
    (launch,) = _launches(program)
    assert launch.grid == [4, 1, 1] and launch.block == [32, 1, 1]
    assert len(launch.parameters) == count
    assert program.kernel_languages == {launch.kernel: language}


def test_what_a_launch_writes_is_seen_by_what_follows() -> None:
    def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hostjit.launch(KERNEL, (4,), (y, x, 2.0, 128))
        hostjit.launch(KERNEL, (8,), (y, x, 3.0, 128))
        return y

    recorder, graph = _record(call, [128, 128])
    assert len(recorder.sources) == 2
    program = lower(graph, "launches")
    assert len(_launches(program)) >= 2
    written = [node for node in graph.nodes if node.target is torch.ops.aten.copy_.default]
    assert len(written) == 1
