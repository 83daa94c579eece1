# SPDX-License-Identifier: Apache-2.0
"""Crashes and hangs are failures of their case, and the list is held to in both directions."""

from __future__ import annotations

import pytest

from conformance.cases import Case, cases, sample_cases
from conformance.runner import CRASH, TIMEOUT, Outcome, run_cases
from conformance.verdict import KNOWN_FAILURES, judge, read_known

CASE = Case("add", "float32")
REFUSED_ONCE = Outcome(CASE, calls=2, failures=[(1, "refused", "why")])
REFUSED_ALWAYS = Outcome(CASE, calls=2, failures=[(0, "refused", "why"), (1, "refused", "why")])
PASSED = Outcome(CASE, calls=2)


def test_the_run_goes_on_after_a_crash_and_a_hang() -> None:
    dtypes = ["float64", "int64", "bfloat16", "bool", "float32"]
    outcomes = run_cases(
        [Case("t", dtype) for dtype in dtypes],
        through="conformance.faulty_subjects:FAULTY",
        limit=1,
        seconds=60,
    )
    assert [outcome.case.dtype for outcome in outcomes] == dtypes
    kinds = [[kind for _, kind, _ in outcome.failures] for outcome in outcomes]
    assert kinds == [[], [CRASH], ["differs"], [TIMEOUT], []]
    assert outcomes[1].failures[0][2] == "SIGSEGV"


@pytest.mark.parametrize("complete", [True, False])
def test_what_is_not_on_the_list_is_wrong(complete: bool) -> None:
    assert judge([PASSED], [], complete=complete) == []
    assert judge([REFUSED_ONCE], [], complete=complete) == ["add/float32 call 1: refused: why"]
    other_kind = read_known("add | float32 | some | differs | reason")
    assert judge([REFUSED_ONCE], other_kind, complete=False) != []
    other_dtype = read_known("add | float64,errors | some | refused | reason")
    assert judge([REFUSED_ONCE], other_dtype, complete=False) != []


def test_a_listed_case_that_passes_is_wrong() -> None:
    some = read_known("add | * | some | refused | reason")
    every = read_known("add | float32 | all | refused | reason")
    assert judge([REFUSED_ONCE], some, complete=True) == []
    assert "passes, but the list has" in judge([PASSED], some, complete=True)[0]
    assert judge([PASSED], some, complete=False) == []
    for complete in (True, False):
        assert judge([REFUSED_ALWAYS], every, complete=complete) == []
        assert "2 of 2 calls pass" in judge([PASSED], every, complete=complete)[0]
        assert "1 of 2 calls pass" in judge([REFUSED_ONCE], every, complete=complete)[0]


def test_a_malformed_line_is_refused() -> None:
    for line in ("add | * | refused", "add | * | often | refused | why", "add | * | all | x |"):
        with pytest.raises(ValueError, match="line 1: expected 'entry"):
            read_known(line)


def test_every_line_of_the_list_names_cases() -> None:
    everything = cases()
    for line in read_known(KNOWN_FAILURES.read_text()):
        assert any(line.covers(case) for case in everything), f"no case of '{line}'"


def test_the_sample_has_every_entry_and_every_dtype() -> None:
    chosen = sample_cases()
    assert {case.entry for case in chosen} == {case.entry for case in cases()}
    assert {case.dtype for case in chosen} == {case.dtype for case in cases()}
