# SPDX-License-Identifier: Apache-2.0
"""What scripts that compare compilers share: options, checked and interleaved rows, a report."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import machine
import torch
from latency import describe, describe_error
from measure import Timed, interleave
from names import names_of
from report import Row, table, write_json

import hostjit

COMPILERS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda target: target,
    "compile": torch.compile,
    "compile_hostjit": lambda target: torch.compile(target, backend="hostjit"),
    "hostjit": hostjit.compile,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=51, help="at least 30 for a reported number")
    parser.add_argument("--threads", type=int, default=1, help="threads and cores to use")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round here")
    parser.add_argument("--markdown", action="store_true", help="print tables for a page")


def parse(description: str, cases: Mapping[str, Any]) -> argparse.Namespace:
    """Parse the options of a script that compares compilers on cases."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--compilers", type=names_of(COMPILERS), default=list(COMPILERS))
    parser.add_argument("--cases", type=names_of(cases), default=list(cases))
    add_options(parser)
    return parser.parse_args()


def begin(threads: int) -> None:
    """Pin the process, and say on what machine it runs."""
    machine.pin(threads)
    print(describe(machine.facts()), file=sys.stderr)


def compare(workload: str, candidates: Mapping[str, Callable[[], Timed]], rounds: int) -> list[Row]:
    """Time the candidates side by side.

    Each is prepared by its function, which raises where its results are not eager's; it then has a
    row that says so.
    """
    timed: dict[str, Timed] = {}
    seconds: dict[str, float] = {}
    failures: dict[str, str] = {}
    for name, prepare in candidates.items():
        start = time.perf_counter()
        try:
            timed[name] = prepare()
        except Exception as error:
            failures[name] = describe_error(error)
        seconds[name] = time.perf_counter() - start
    timings = dict(zip(timed, interleave(list(timed.values()), rounds), strict=True))
    return [
        Row(workload, name, failures[name])
        if name in failures
        else Row(
            workload,
            name,
            median_us=timings[name].median * 1e6,
            min_us=timings[name].minimum * 1e6,
            calls_per_round=timings[name].calls_per_round,
            prepare_s=seconds[name],
            rounds_us=[value * 1e6 for value in timings[name].rounds],
        )
        for name in candidates
    ]


def report(rows: list[Row], json_file: Path | None, markdown: bool) -> int:
    """Print the rows, write them where that is asked for, and return the exit status."""
    print(table(rows, markdown))
    if json_file:
        write_json(json_file, machine.facts(), rows)
    return 1 if any(row.failure for row in rows) else 0
