# SPDX-License-Identifier: Apache-2.0
"""The sample mode: a part of the databases through each subject, in some minutes."""

from __future__ import annotations

import os

import pytest

from conformance.cases import sample_cases
from conformance.runner import run_cases
from conformance.summary import summarise
from conformance.verdict import KNOWN_FAILURES, judge, read_known

# Calls of each case: what fails only for others shows in the full mode.
CALLS = {"hostjit.compile": 2, "torch.compile": 1}


@pytest.mark.parametrize("through", CALLS)
def test_the_sample_fails_as_listed(through: str) -> None:
    jobs = len(os.sched_getaffinity(0))
    outcomes = run_cases(sample_cases(through), through=through, limit=CALLS[through], jobs=jobs)
    known = read_known(KNOWN_FAILURES.read_text())
    wrong = judge(outcomes, known, through, complete=False)
    assert not wrong, "\n".join([*wrong, summarise(outcomes)])
