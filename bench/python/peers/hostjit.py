# SPDX-License-Identifier: Apache-2.0
"""hostjit: each of its two runtimes, with results kept, with Inductor's kernels, as a backend."""

import importlib
from typing import Any, ClassVar

import torch
from workloads import Workload

from peers.peer import Peer, Prepared
from peers.torch_compile import with_own_code


class HostJit(Peer):
    name = "hostjit"
    description = "hostjit.compile(module)(*tensors)"
    requires = ("hostjit",)
    arguments: ClassVar[dict[str, Any]] = {}

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        hostjit: Any = importlib.import_module("hostjit")
        return Prepared(hostjit.compile(workload.module(), **self.arguments))


class HostJitEvaluator(HostJit):
    name = "hostjit_evaluator"
    description = "hostjit.compile(module, runtime='evaluator')(*tensors)"
    arguments: ClassVar[dict[str, Any]] = {"runtime": "evaluator"}


class HostJitReusing(HostJit):
    name = "hostjit_reusing"
    description = "hostjit.compile(module, reuse_outputs=True)(*tensors)"
    arguments: ClassVar[dict[str, Any]] = {"reuse_outputs": True}


class HostJitInductor(HostJit):
    name = "hostjit_inductor"
    description = "hostjit.compile(module, kernels='inductor')(*tensors)"
    arguments: ClassVar[dict[str, Any]] = {"kernels": "inductor"}


class TorchCompileHostJit(Peer):
    name = "compile_hostjit"
    description = "torch.compile(module, backend='hostjit')(*tensors)"
    requires = ("hostjit",)

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        importlib.import_module("hostjit")  # the name, where its entry point is not installed
        module = with_own_code(workload.module())
        return Prepared(torch.compile(module, dynamic=False, backend="hostjit"))
