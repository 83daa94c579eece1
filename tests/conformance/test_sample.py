# SPDX-License-Identifier: Apache-2.0
"""The sample mode: one case of every entry of the operator database, in some minutes."""

from __future__ import annotations

import os

from conformance.cases import sample_cases
from conformance.runner import run_cases
from conformance.summary import summarise
from conformance.verdict import KNOWN_FAILURES, judge, read_known

# Calls of each case: what fails only for others shows in the full mode.
CALLS = 2


def test_the_sample_fails_as_listed() -> None:
    outcomes = run_cases(sample_cases(), limit=CALLS, jobs=len(os.sched_getaffinity(0)))
    wrong = judge(outcomes, read_known(KNOWN_FAILURES.read_text()), complete=False)
    assert not wrong, "\n".join([*wrong, summarise(outcomes)])
