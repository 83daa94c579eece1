# SPDX-License-Identifier: Apache-2.0
"""AOTInductor: the exported program as a shared library, called from Python."""

import tempfile
from pathlib import Path

import torch
from workloads import Workload

from peers.peer import Peer, Prepared


class AotInductor(Peer):
    name = "aotinductor"
    description = "torch._inductor.aoti_load_package(path)(*tensors)"

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        from torch._inductor import aoti_compile_and_package, aoti_load_package

        program = torch.export.export(workload.module(), workload.inputs())
        folder = Path(tempfile.mkdtemp(prefix="hostjit-bench-"))
        package = aoti_compile_and_package(
            program, package_path=str(folder / f"{workload.name}.pt2")
        )
        return Prepared(aoti_load_package(package))
