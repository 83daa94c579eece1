# SPDX-License-Identifier: Apache-2.0
"""Crashes and hangs are failures of their case, and the list is held to in both directions."""

from __future__ import annotations

import pytest

from conformance.case import Case
from conformance.cases import cases, sample_cases
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
        seconds=30,
    )
    assert [outcome.case.dtype for outcome in outcomes] == dtypes
    kinds = [[kind for _, kind, _ in outcome.failures] for outcome in outcomes]
    assert kinds == [[], [CRASH], ["differs"], [TIMEOUT], []]
    assert outcomes[1].failures[0][2] == "SIGSEGV"


@pytest.mark.parametrize("complete", [True, False])
def test_what_is_not_on_the_list_is_wrong(complete: bool) -> None:
    assert judge([PASSED], [], "eager", complete=complete) == []
    assert judge([REFUSED_ONCE], [], "eager", complete=complete) == [
        "add/float32 call 1: refused: why"
    ]
    other_kind = read_known("add | float32 | some | eager | differs | reason")
    assert judge([REFUSED_ONCE], other_kind, "eager", complete=False) != []
    other_dtype = read_known("add | float64,errors,float32.backward | some | * | refused | reason")
    assert judge([REFUSED_ONCE], other_dtype, "eager", complete=False) != []


def test_a_listed_case_that_passes_is_wrong() -> None:
    some = read_known("add | * | some | eager | refused | reason")
    every = read_known("add | float32 | all | * | refused | reason")
    assert judge([REFUSED_ONCE], some, "eager", complete=True) == []
    assert "passes, but the list has" in judge([PASSED], some, "eager", complete=True)[0]
    assert judge([PASSED], some, "eager", complete=False) == []
    for complete in (True, False):
        assert judge([REFUSED_ALWAYS], every, "eager", complete=complete) == []
        assert "2 of 2 calls pass" in judge([PASSED], every, "eager", complete=complete)[0]
        assert "1 of 2 calls pass" in judge([REFUSED_ONCE], every, "eager", complete=complete)[0]


def test_a_malformed_line_is_refused() -> None:
    for line in (
        "a | * | all | refused | why",
        "a | * | often | * | refused | why",
        "a | * | all | * | x |",
    ):
        with pytest.raises(ValueError, match="line 1: expected 'entry"):
            read_known(line)


def test_every_line_of_the_list_names_cases() -> None:
    everything = cases()
    for line in read_known(KNOWN_FAILURES.read_text()):
        assert any(line.covers(case, line.through) for case in everything), f"no case of '{line}'"


def test_the_samples_have_every_operator_every_dtype_and_every_kind() -> None:
    chosen = sample_cases("hostjit.compile")
    forward = [case for case in cases() if case.kind == "operators, forward"]
    assert {case.entry for case in chosen} >= {case.entry for case in forward}
    chosen += sample_cases("torch.compile")
    assert {case.part for case in chosen} == {case.part for case in cases()}
    assert {case.kind for case in chosen} == {case.kind for case in cases()}
