# SPDX-License-Identifier: Apache-2.0
"""tinygrad on the CPU: the formula under TinyJit."""

import importlib
import os
import shutil
from typing import Any

import torch
from torch import Tensor
from workloads import Workload

from peers.peer import Peer, Prepared


class Tinygrad(Peer):
    name = "tinygrad"
    description = "TinyJit(function that captured its parameters)(*tensors), then synchronize"
    requires = ("tinygrad",)

    def unavailable(self) -> str | None:
        """Return why not; its CPU device compiles with clang, or with what CC names."""
        compiler = os.environ.get("CC", "clang")
        missing = None if shutil.which(compiler) else f"no {compiler} (CC names another one)"
        return super().unavailable() or missing

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        os.environ.setdefault("DEV", "CPU")
        os.environ.setdefault("CPU_COUNT", str(threads))
        tinygrad: Any = importlib.import_module("tinygrad")
        ops = TinygradOps()

        def from_torch(tensor: Tensor) -> Any:
            return tinygrad.Tensor(tensor.numpy()).realize()

        state = workload.module().state_dict()
        parameters = {name: from_torch(value) for name, value in state.items()}
        compiled = tinygrad.TinyJit(
            lambda *inputs: workload.formula(ops, parameters, *inputs).realize()
        )
        synchronize = tinygrad.Device[tinygrad.Device.DEFAULT].synchronize

        def call(*inputs: Any) -> Any:
            result = compiled(*inputs)
            synchronize()
            return result

        # The first call runs, the second records, later ones replay.
        inputs = [from_torch(tensor) for tensor in workload.inputs()]
        call(*inputs)
        call(*inputs)
        return Prepared(call, from_torch, lambda result: torch.from_numpy(result.numpy().copy()))


class TinygradOps:
    def relu(self, x: Any) -> Any:
        return x.relu()

    def tanh(self, x: Any) -> Any:
        return x.tanh()

    def gelu(self, x: Any) -> Any:
        return x * (1 + (x * 0.5**0.5).erf()) * 0.5

    def layer_norm(self, x: Any) -> Any:
        return x.layernorm(axis=-1, eps=1e-5)
