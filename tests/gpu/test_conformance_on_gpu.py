# SPDX-License-Identifier: Apache-2.0
"""PyTorch's databases on CUDA: as many cases of the sample as the time allows."""

from __future__ import annotations

import os
import random

import pytest

from conformance.runner import run_cases
from conformance.summary import summarise
from conformance.verdict import judge, known_on

MINUTES = float(os.environ.get("HOSTJIT_CONFORMANCE_MINUTES", "3"))


@pytest.mark.parametrize("through", ["hostjit.compile", "torch.compile"])
def test_the_sample_fails_as_listed_on_cuda(through: str) -> None:
    pytest.importorskip("expecttest", reason="PyTorch's databases need expecttest")
    from conformance.cases import sample_cases

    chosen = sample_cases(through, "cuda")
    random.Random(0).shuffle(chosen)
    outcomes = run_cases(
        chosen,
        through=through,
        limit=2,
        jobs=min(16, len(os.sched_getaffinity(0))),
        device="cuda",
        total_seconds=60 * MINUTES,
    )
    wrong = judge(outcomes, known_on("cuda"), through, complete=False)
    assert outcomes and not wrong, "\n".join([*wrong, summarise(outcomes)])
