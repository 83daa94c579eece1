# SPDX-License-Identifier: Apache-2.0
"""PyTorch without a compiler: the reference of all results."""

from peers.peer import Peer, Prepared
from workloads import Workload


class Eager(Peer):
    name = "eager"
    description = "module(*tensors)"

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        return Prepared(workload.module())
