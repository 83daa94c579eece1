# SPDX-License-Identifier: Apache-2.0
"""The device of these tests, and why they can't run."""

from __future__ import annotations

import os

import torch

__all__ = ["DEVICE", "MISSING", "random_state", "synchronise"]

# For work on the tests themselves where there is no GPU: HOSTJIT_GPU_TESTS_ON=cpu.
DEVICE = os.environ.get("HOSTJIT_GPU_TESTS_ON", "cuda")
MISSING = "" if DEVICE == "cpu" or torch.cuda.is_available() else "needs a CUDA device"


def synchronise() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def random_state() -> torch.Tensor:
    return torch.cuda.get_rng_state() if DEVICE == "cuda" else torch.get_rng_state()
