# SPDX-License-Identifier: Apache-2.0
"""Recordings of launches of Triton, with fake CUDA tensors; not to be imported without Triton."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode

from hostjit import _C
from hostjit.capturing.functional.trace import trace_functional
from hostjit.launching.launch_operator import LAUNCH
from hostjit.lowering import cuda_launches
from hostjit.lowering.lower import lower
from hostjit.recording.code.seen_code import SeenCode
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.reach.state import State
from hostjit.recording.running.function_watcher import FunctionWatcher
from hostjit.recording.triton.launches import RecordedLaunches

__all__ = ["Recorded", "add", "added", "blocks", "fakes", "multiply", "part", "record", "tuned"]

FACTOR = tl.constexpr(2)


@triton.jit
def add(x, y, out, n, scale, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    total = tl.load(x + i, mask=inside) + scale * tl.load(y + i, mask=inside)
    tl.store(out + i, total, mask=inside)


@triton.jit
def multiply(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * FACTOR, mask=i < n)


def blocks(meta: dict[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def added(x: torch.Tensor, y: torch.Tensor, **options: Any) -> torch.Tensor:
    out = torch.empty_like(x)
    add[blocks](x, y, out, x.numel(), 0.5, BLOCK=128, **options)
    return out


def part(x: torch.Tensor, begin: int) -> torch.Tensor:
    return torch.ops.aten.slice.Tensor(x, 0, begin, begin + 32)


def tuned(**options: Any) -> Any:
    configs = [
        triton.Config({"BLOCK": 128}, num_warps=2),
        triton.Config({"BLOCK": 256}, num_warps=8),
    ]
    return triton.autotune(configs=configs, key=["n"], **options)(multiply)


class RecorderOfFakes(Recorder):
    """Fake tensors are asked for their device in a way in which real ones are not."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return func(*args)
        return super().__torch_dispatch__(func, types, args, kwargs)


@dataclasses.dataclass
class Recorded:
    """A recording, and the launches that are in it."""

    recorder: Recorder
    seen: SeenCode
    state: State
    launches: RecordedLaunches
    result: Any
    mode: FakeTensorMode

    @property
    def problem(self) -> str:
        return self.recorder.problem or self.seen.problem or self.state.obstacle

    def nodes(self) -> list[dict[str, Any]]:
        """The operands of the launches, by name."""
        names = [argument.name for argument in LAUNCH._schema.arguments]
        found = self.recorder.graph.find_nodes(op="call_function", target=LAUNCH)
        return [dict(zip(names, node.args, strict=True)) for node in found]

    def program(self) -> _C.Program:
        graph = self.recorder.graph
        graph.output((self.recorder.node_of(self.result),))
        inputs = [source.tensor for source in self.recorder.sources]
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        functional = trace_functional(module, inputs, self.mode).graph_module.graph
        with mock.patch.object(cuda_launches, "compile_ptx", lambda source, arch: source):
            program = lower(functional, "recorded")
        program.verify()
        return program


def record(function: Callable[..., Any], *tensors: torch.Tensor) -> Recorded:
    state = State()
    state.add_target(function)
    recorder = RecorderOfFakes(tensors, state, "guard")
    seen = SeenCode(state.add_code)
    launches = RecordedLaunches(recorder, state)
    mode = tensors[0].fake_mode  # type: ignore[attr-defined]
    with mode, launches, FunctionWatcher(recorder), recorder, seen:
        result = function(*tensors)
    return Recorded(recorder, seen, state, launches, result, mode)


def fakes(*sizes: int, device: str = "cuda:0", **options: Any) -> list[torch.Tensor]:
    with FakeTensorMode():
        return [torch.empty(size, device=device, **options) for size in sizes]
