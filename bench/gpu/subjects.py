# SPDX-License-Identifier: Apache-2.0
"""What the GPU tables compare, by name, in the order of the tables."""

import importlib
import inspect
import os
from typing import Any

import torch
from peers.eager import Eager
from peers.hostjit import HostJit, HostJitEvaluator, HostJitReusing, TorchCompileHostJit
from peers.jax import Jax, JaxConstants
from peers.peer import Peer, Prepared
from peers.torch_compile import TorchCompile, with_own_code
from torch import Tensor
from workloads import Workload

WARM_UP_CALLS = 3


class TorchCompileReduceOverhead(Peer):
    name = "compile_reduce_overhead"
    description = "torch.compile(module, mode='reduce-overhead')(*tensors)"

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        module = with_own_code(workload.module())
        return Prepared(torch.compile(module, dynamic=False, mode="reduce-overhead"))


class CudaGraph(Peer):
    """A user's own capture: results stay in one place, and each call overwrites them."""

    name = "cuda_graph"
    description = "torch.cuda.CUDAGraph of module(*tensors): copy the inputs in, replay"

    def unavailable(self) -> str | None:
        return None if torch.cuda.is_available() else "no CUDA device"

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        module = workload.module()
        held = tuple(x.clone() for x in workload.inputs())
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_CALLS):
                module(*held)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = module(*held)

        # The graph has the addresses of the parameters: the module has to live.
        def call(*inputs: Tensor, alive: torch.nn.Module = module) -> Tensor:
            for ours, given in zip(held, inputs, strict=True):
                ours.copy_(given)
            graph.replay()
            return result

        return Prepared(call)


class HostJitGraphs(HostJit):
    """hostjit with CUDA graphs as told; without the argument, there are none to be told."""

    def __init__(self, graphs: str) -> None:
        self.name = f"hostjit_graphs_{graphs}"
        self.description = f"hostjit.compile(module, graphs='{graphs}')(*tensors)"
        self.arguments: dict[str, Any] = {"graphs": graphs}  # type: ignore[misc]

    def unavailable(self) -> str | None:
        if missing := super().unavailable():
            return missing
        hostjit: Any = importlib.import_module("hostjit")
        known = "graphs" in inspect.signature(hostjit.compile).parameters
        return None if known else "hostjit.compile has no argument `graphs`"


SUBJECTS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Eager(),
        TorchCompile(),
        TorchCompileReduceOverhead(),
        CudaGraph(),
        Jax(),
        JaxConstants(),
        HostJit(),
        HostJitEvaluator(),
        HostJitReusing(),
        HostJitGraphs("off"),
        HostJitGraphs("auto"),
        HostJitGraphs("on"),
        TorchCompileHostJit(),
    )
}


def prepare_environment(device: str) -> None:
    """Make JAX use the device beside PyTorch, with products as exact; before it is imported."""
    if device.startswith("cuda"):
        os.environ.setdefault("JAX_PLATFORMS", "cuda")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")
