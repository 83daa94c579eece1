# SPDX-License-Identifier: Apache-2.0
"""The process that runs cases: names on standard input, one line of JSON per event on the output.

Events: {"event": "ready"}; {"event": "call", "case", "index"} before each call of a case;
{"event": "finding", ...} for each call that does not agree; {"event": "done", "case", "calls"}
after the last. What a crash leaves is a "call" without an answer.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import traceback
import warnings
from typing import Any

import torch

from conformance.case import Case
from conformance.cases import calls_of
from conformance.comparison import DIFFERS, Finding, Shared, compare
from conformance.operators import operators_unwrapped
from conformance.subjects import Subject, subject_named

__all__ = ["main"]


def main(through: str, limit: int | None, device: str) -> None:
    """Run the cases that the standard input names, one per line, until it ends."""
    # Operators may print; the events keep the pipe to themselves.
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")

    def tell(event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), file=events)

    subject = subject_named(through)
    with operators_unwrapped():
        # The databases are many objects, which every collection would go through, and compilations
        # make many.
        gc.freeze()
        gc.set_threshold(20_000, 10, 50)
        tell("ready")
        for line in sys.stdin:
            _run(Case.parse(line.strip()), subject, limit, device, tell)


def _run(case: Case, subject: Subject, limit: int | None, device: str, tell: Any) -> None:
    calls = 0
    shared: Shared = {}
    tell("call", case=str(case), index=0)
    for index, call in enumerate(calls_of(case, limit, device)):
        tell("call", case=str(case), index=index)
        try:
            finding = compare(call, subject, shared)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)})"
            finding = Finding(DIFFERS, " ".join(f"comparison: {what}".split()))
        if device == "cuda":
            # What a kernel did wrong ends this process: no later call would tell anything.
            torch.cuda.synchronize()
        calls += 1
        if finding.kind:
            tell("finding", case=str(case), index=index, **dataclasses.asdict(finding))
    tell("done", case=str(case), calls=calls)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) or None, sys.argv[3])
