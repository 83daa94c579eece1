# SPDX-License-Identifier: Apache-2.0
"""TorchScript: traced, frozen, optimised for inference."""

import warnings
from typing import Any

import torch
from workloads import Workload

from peers.peer import Peer, Prepared


class TorchScript(Peer):
    name = "torchscript"
    description = "torch.jit.freeze(torch.jit.trace(module, tensors))(*tensors)"

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            trace: Any = torch.jit.trace
            return Prepared(torch.jit.freeze(trace(workload.module(), workload.inputs())))
