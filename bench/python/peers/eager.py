# SPDX-License-Identifier: Apache-2.0
"""PyTorch without a compiler: the reference of all results."""

from workloads import Workload

from peers.peer import Peer, Prepared


class Eager(Peer):
    name = "eager"
    description = "module(*tensors)"

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        return Prepared(workload.module())
