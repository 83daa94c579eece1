# SPDX-License-Identifier: Apache-2.0
"""Whole calls of models, without gradients."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from latency import available, call, check
from models import MODELS, on_device
from peers.peer import Peer
from side_by_side import Candidate, candidate
from subjects import SUBJECTS
from timing import Device
from workloads import Workload

CALLS = tuple(MODELS)


def preparations(
    name: str, device: Device, subjects: Sequence[str]
) -> dict[str, Callable[[], Candidate]]:
    """Return what makes a candidate of each subject that can run here."""
    workload = on_device(MODELS[name], device.name)
    torch.set_grad_enabled(False)
    return {
        peer.name: partial(prepare, peer, workload, device)
        for peer in available(subjects, SUBJECTS)
        if workload.formula or not peer.name.startswith("jax")
    }


def prepare(peer: Peer, workload: Workload, device: Device) -> Candidate:
    prepared = peer.prepare(workload, threads=1)
    call(prepared, workload, seed=0)
    check(prepared, workload)
    arguments = [prepared.from_torch(x) for x in workload.inputs()]
    blocking = prepared.function if prepared.enqueue else None
    return candidate(
        device,
        prepared.enqueue or prepared.function,
        arguments,
        blocking,
        check=partial(check, prepared, workload),
    )
