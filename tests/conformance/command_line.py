# SPDX-License-Identifier: Apache-2.0
"""Run PyTorch's databases, all of them or a part, and hold them against the known failures."""

from __future__ import annotations

import argparse
import math
import os
import random
from pathlib import Path

from conformance.case import Case
from conformance.cases import cases, sample_cases
from conformance.runner import Outcome, run_cases
from conformance.summary import suggested_lines, summarise
from conformance.verdict import judge, known_on

__all__ = ["main"]


def main() -> int:
    """Run what the command line asks for; the exit status tells whether all is as listed."""
    options = _parser().parse_args()
    chosen = _chosen(options)
    done = 0

    def report(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        firsts = {kind: message for _, kind, message in reversed(outcome.failures)} or {"ok": ""}
        for kind, message in firsts.items():
            print(f"[{done}/{len(chosen)}] {outcome.case} {kind} {message}", flush=True)

    outcomes = run_cases(
        chosen,
        through=options.through,
        limit=options.calls or None,
        jobs=options.jobs,
        seconds=options.seconds,
        device=options.device,
        total_seconds=60 * options.minutes,
        report=report,
    )
    complete = not options.calls and options.device == "cpu"
    wrong = judge(outcomes, known_on(options.device), options.through, complete=complete)
    for line in wrong:
        print(line)
    if options.suggest:
        Path(options.suggest).write_text(
            "".join(f"{line}\n" for line in suggested_lines(outcomes, options.through))
        )
    print(summarise(outcomes))
    if len(outcomes) < len(chosen):
        print(f"{len(outcomes)} of {len(chosen)} cases had a turn in {options.minutes:g} minutes")
    print(f"{len(wrong)} not as listed" if wrong else "all as listed")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tests/conformance", description=__doc__)
    parser.add_argument("--through", default="hostjit.compile", help="the subject to judge")
    parser.add_argument("--sample", action="store_true", help="what `make test` runs")
    parser.add_argument("--kind", help='"backward", "modules", "operators, forward", ...')
    parser.add_argument("--part", help="float64, bool.backward, errors, ...")
    parser.add_argument(
        "--shard", default="1/1", metavar="I/N", help="every Nth entry, from the Ith"
    )
    parser.add_argument("--calls", type=int, default=0, help="calls of a case at most; 0 for all")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=120, help="time limit of one call")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="begin no case after these; cases are then in an order of chance",
    )
    parser.add_argument("--suggest", metavar="FILE", help="write the failures as lines of the list")
    parser.add_argument("only", nargs="*", help="entries (add) or cases (add/float32)")
    return parser


def _chosen(options: argparse.Namespace) -> list[Case]:
    device = options.device
    found = sample_cases(options.through, device) if options.sample else cases(device)
    if options.kind:
        found = [case for case in found if options.kind in case.kind]
    if options.part:
        found = [case for case in found if case.part == options.part]
    if options.only:
        found = [case for case in found if {case.entry, str(case)} & set(options.only)]
    index, _, count = options.shard.partition("/")
    entries = list(dict.fromkeys(case.entry for case in found))
    mine = set(entries[int(index) - 1 :: int(count)])
    found = [case for case in found if case.entry in mine]
    if options.minutes < math.inf:
        random.Random(0).shuffle(found)
    return found
