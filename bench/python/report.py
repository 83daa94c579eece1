# SPDX-License-Identifier: Apache-2.0
"""The rows of a measurement, as a table and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# Whose results are ours, not a peer's.
OURS = ("hostjit", "hostjit_evaluator", "hostjit_reusing", "hostjit_inductor", "compile_hostjit")
# Written for one model: no system to be compared with.
BY_HAND = ("floor",)


@dataclass(frozen=True)
class Row:
    """One peer on one workload; times in microseconds. `failure` says why there are none.

    prepare_s: seconds from the module to its first result, in this process and with warm caches on
        disk where a peer has them; first_call.py measures cold starts.
    """

    workload: str
    peer: str
    failure: str | None = None
    median_us: float = 0.0
    min_us: float = 0.0
    calls_per_round: int = 0
    prepare_s: float = 0.0
    rounds_us: list[float] = field(default_factory=list, repr=False)


def table(rows: Sequence[Row], markdown: bool) -> str:
    """Return all rows; the ratios say how many times as long `eager` and `compile` take."""
    medians = {(row.workload, row.peer): row.median_us for row in rows if not row.failure}
    header = ["workload", "peer", "median us", "min us", "eager /", "compile /", "prepare s"]
    lines = []
    for row in rows:
        if row.failure:
            lines.append([row.workload, row.peer, row.failure, "", "", "", ""])
            continue
        ratios = [
            ratio(medians.get((row.workload, base)), row.median_us) for base in ("eager", "compile")
        ]
        lines.append(
            [
                row.workload,
                row.peer,
                microseconds(row.median_us),
                microseconds(row.min_us),
                *ratios,
                f"{row.prepare_s:.2f}",
            ]
        )
    return format_table(header, lines, markdown)


def summary(rows: Sequence[Row], markdown: bool) -> str:
    """Return one line per workload: hostjit against eager, torch.compile and the best of all."""
    header = ["workload", "eager", "torch.compile", "best peer", "hostjit", "evaluator"]
    header += ["eager / hostjit", "compile / hostjit", "best / hostjit"]
    lines = []
    for workload in dict.fromkeys(row.workload for row in rows):
        times = {row.peer: row.median_us for row in rows if row.workload == workload}
        times = {peer: value for peer, value in times.items() if value}
        ours = times.get("hostjit")
        others = {peer: value for peer, value in times.items() if peer not in (*OURS, *BY_HAND)}
        best = min(others, key=others.__getitem__) if others else None
        lines.append(
            [
                workload,
                microseconds(times.get("eager")),
                microseconds(times.get("compile")),
                f"{microseconds(others[best])} ({best})" if best else "",
                microseconds(ours),
                microseconds(times.get("hostjit_evaluator")),
                ratio(times.get("eager"), ours),
                ratio(times.get("compile"), ours),
                ratio(others[best] if best else None, ours),
            ]
        )
    return format_table(header, lines, markdown)


def write_json(path: Path, machine: dict[str, Any], rows: Sequence[Row]) -> None:
    content = {"machine": machine, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(content, indent=1) + "\n")


def microseconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def ratio(base: float | None, value: float | None) -> str:
    return f"{base / value:.2f}x" if base and value else ""


def format_table(header: Sequence[str], lines: Sequence[Sequence[str]], markdown: bool) -> str:
    """Align the columns: text on the left, numbers on the right."""
    if markdown:
        rule = ["---" if index < 2 else "---:" for index in range(len(header))]
        return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *lines))
    # A row that failed has a long text in its third column and nothing after it.
    full = [line for line in (header, *lines) if line[-1] or line[3]]
    widths = [max(len(line[index]) for line in full) for index in range(len(header))]
    formatted = []
    for line in (header, *lines):
        cells = [
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        formatted.append("  ".join(cells).rstrip())
    return "\n".join(formatted)
