# SPDX-License-Identifier: Apache-2.0
"""Models written by hand in C, called through vectorcall: what a call costs at least."""

import importlib
import os
import sys
from typing import Any

from workloads import Workload

from peers.peer import Peer, Prepared


class Floor(Peer):
    """Needs the CMake target hostjit_floor, and HOSTJIT_FLOOR set to the folder it was built in."""

    name = "floor"
    description = "the module hostjit_floor: policy_b1 and chain32 written by hand in C"

    def unavailable(self) -> str | None:
        if "HOSTJIT_FLOOR" not in os.environ:
            return "HOSTJIT_FLOOR is not set to the folder of the CMake target hostjit_floor"
        return None

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        if os.environ["HOSTJIT_FLOOR"] not in sys.path:
            sys.path.append(os.environ["HOSTJIT_FLOOR"])
        module: Any = importlib.import_module("hostjit_floor")
        return Prepared(module.Floor(workload.name, tuple(workload.module().parameters())))
