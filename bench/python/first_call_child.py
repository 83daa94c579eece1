# SPDX-License-Identifier: Apache-2.0
"""One process of first_call.py: the clock starts when a user could first name a model."""

# ruff: noqa: E402, I001
import torch
import time

BEGIN = time.perf_counter()

import json
import sys

from peers import PEERS
from workloads import WORKLOADS


def main(peer_name: str, workload_name: str, threads: int) -> dict[str, str | float]:
    """Prepare the peer, call it once and stop the clock; then check the result."""
    torch.set_num_threads(threads)
    peer, workload = PEERS[peer_name], WORKLOADS[workload_name]
    if reason := peer.unavailable():
        return {"failure": reason}
    with torch.no_grad():
        prepared = peer.prepare(workload, threads)
        inputs = [prepared.from_torch(tensor) for tensor in workload.inputs()]
        result = prepared.to_torch(prepared.function(*inputs))
        seconds = time.perf_counter() - BEGIN
        torch.testing.assert_close(result, workload.module()(*workload.inputs()))
    return {"seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
