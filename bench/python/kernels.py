# SPDX-License-Identifier: Apache-2.0
"""Nanoseconds of one operation at many sizes: hostjit, ATen, Inductor and the roofline.

python bench/python/kernels.py
python bench/python/kernels.py --families functions --elements 65536 --against eager,compile
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import machine
import torch
from kernel_cases import FAMILIES, Case
from measure import Timed, interleave
from names import names_of
from report import format_table, ratio
from roofline import copy_bandwidth, least_seconds, peak_flops

import hostjit

AGAINST: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": lambda function: function,
    "compile": lambda function: torch.compile(function, dynamic=False),
}


@dataclass(frozen=True)
class Row:
    """Medians in nanoseconds, by who ran the case; `failure` says why hostjit's is missing."""

    family: str
    name: str
    elements: int
    num_bytes: int
    flops: int
    nanoseconds: dict[str, float]
    least_nanoseconds: float
    failure: str | None = None


def main() -> int:
    arguments = parse()
    machine.pin(arguments.threads)
    rows: list[Row] = []
    with torch.no_grad():
        for family in arguments.families:
            print(f"{family}:", end="", flush=True, file=sys.stderr)
            for elements in arguments.elements:
                print(f" {elements}", end="", flush=True, file=sys.stderr)
                torch.manual_seed(0)
                for case in FAMILIES[family](elements):
                    if any(word in case.name for word in arguments.names or [""]):
                        rows.append(measure(case, arguments.against, arguments.rounds))
            print(file=sys.stderr)
        print(table(rows, arguments.against, arguments.markdown))
        for row in rows:
            if row.failure:
                print(f"FAILED {row.name}, {row.elements} elements: {row.failure}")
        print()
        print(limits(rows))
    if arguments.json:
        content = {"machine": machine.facts(), "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 1 if any(row.failure for row in rows) else 0


def measure(case: Case, against: Sequence[str], rounds: int) -> Row:
    """Check every candidate against eager, then time them side by side."""
    torch.compiler.reset()
    functions = {name: AGAINST[name](case.function) for name in against}
    functions["hostjit"] = hostjit.compile(case.function)
    failure = None
    expected = case.function(*case.inputs)
    for name, function in list(functions.items()):
        try:
            torch.testing.assert_close(function(*case.inputs), expected)
        except Exception as error:
            failure = f"{name}: {type(error).__name__}: {' '.join(str(error).split())}"
            del functions[name]
    timed = [Timed(function, case.inputs) for function in functions.values()]
    timings = interleave(timed, rounds)
    medians = {name: timing.median * 1e9 for name, timing in zip(functions, timings, strict=True)}
    num_bytes = case.num_bytes
    least = least_seconds(num_bytes, case.flops) * 1e9
    return Row(
        case.family, case.name, case.elements, num_bytes, case.flops, medians, least, failure
    )


def table(rows: Sequence[Row], against: Sequence[str], markdown: bool) -> str:
    """Return a line per case; rates and the percentage of the roofline are hostjit's."""
    header = ["family", "case", "elements", *(f"{name} ns" for name in against), "hostjit ns"]
    header += [*(f"{name} /" for name in against), "GB/s", "GFLOP/s", "% of roofline"]
    lines = []
    for row in rows:
        ours = row.nanoseconds.get("hostjit")
        rates = ["", "", ""]
        if ours:
            rates = [f"{row.num_bytes / ours:.1f}", f"{row.flops / ours:.1f}"]
            rates.append(f"{100 * row.least_nanoseconds / ours:.0f}")
        lines.append(
            [
                row.family,
                row.name,
                str(row.elements),
                *(format_nanoseconds(row.nanoseconds.get(name)) for name in (*against, "hostjit")),
                *(ratio(row.nanoseconds.get(name), ours) for name in against),
                *rates,
            ]
        )
    return format_table(header, lines, markdown)


def limits(rows: Sequence[Row]) -> str:
    """Return what the roofline is made of."""
    bandwidths = {copy_bandwidth(row.num_bytes): row.num_bytes for row in rows}
    copies = [f"{rate / 1e9:.0f} GB/s of {size}" for rate, size in bandwidths.items()]
    return f"peak {peak_flops() / 1e9:.0f} GFLOP/s; copies, by bytes in all: {', '.join(copies)}"


def format_nanoseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Nanoseconds of one operation: hostjit, ATen, Inductor and the roofline."
    )
    parser.add_argument("--families", type=names_of(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--names", type=lambda text: text.split(","), help="parts of case names")
    parser.add_argument(
        "--elements",
        type=lambda text: [int(word) for word in text.split(",")],
        default=[2**4, 2**8, 2**12, 2**16, 2**20],
        metavar="N,N",
    )
    parser.add_argument("--against", type=names_of(AGAINST), default=["eager"], metavar="A,B")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all numbers here")
    parser.add_argument("--markdown", action="store_true", help="print the table for a page")
    return parser.parse_args()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    sys.exit(main())
