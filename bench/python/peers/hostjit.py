# SPDX-License-Identifier: Apache-2.0
"""hostjit, with each of its two runtimes."""

import importlib
from typing import Any, ClassVar

from workloads import Workload

from peers.peer import Peer, Prepared


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
