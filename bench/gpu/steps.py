# SPDX-License-Identifier: Apache-2.0
"""Training steps: forward, loss, backward, AdamW, gradients set to None."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from comparison import COMPILERS
from models import MODELS, on_device
from side_by_side import Candidate, candidate
from timing import Device
from torch import Tensor
from training import Trainer, check_parameters, inputs_and_target, train
from workloads import Workload

FORMS: dict[str, dict[str, Any]] = {"fused": {"fused": True}, "foreach": {"foreach": True}}
STEPS = tuple(f"train_{model}_{form}" for model in ("policy_b1", "lnmlp_b1") for form in FORMS)
TRAINERS = {
    **COMPILERS,
    "compile_reduce_overhead": partial(torch.compile, mode="reduce-overhead"),
}


def preparations(
    name: str, device: Device, subjects: Sequence[str]
) -> dict[str, Callable[[], Candidate]]:
    """Return what makes a candidate of each way to train."""
    model, _, form = name.removeprefix("train_").rpartition("_")
    workload = on_device(MODELS[model], device.name)
    inputs = inputs_and_target(workload)
    expected = train(Trainer(workload, COMPILERS["eager"], **FORMS[form]), inputs)
    return {
        subject: partial(
            prepare, workload, TRAINERS[subject], FORMS[form], inputs, expected, device
        )
        for subject in TRAINERS
        if subject in subjects
    }


def prepare(
    workload: Workload,
    compile: Callable[[Any], Any],
    options: dict[str, Any],
    inputs: tuple[Tensor, ...],
    expected: list[Tensor],
    device: Device,
) -> Candidate:
    trainer = Trainer(workload, compile, **options)
    check_parameters(train(trainer, inputs), expected)
    return candidate(device, trainer.step, inputs)
