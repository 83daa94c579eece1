# SPDX-License-Identifier: Apache-2.0
"""A run as Markdown: what it ran on, the goals beside what was measured, every number."""

from collections.abc import Mapping, Sequence
from typing import Any

from floor import LAUNCHES
from launches import CHAIN
from report import format_table, microseconds, ratio
from side_by_side import TIMES, Row

PEERS = ("eager", "compile", "compile_reduce_overhead")
OURS = "hostjit"


def markdown(content: Mapping[str, Any]) -> str:
    """Return the whole page."""
    facts = content["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    head = [
        f"# {facts.get('gpu', 'no GPU')}, {facts['time'][:10]}",
        f"Driver {facts.get('driver_version', '?')}, CUDA {facts.get('cuda', '?')}, "
        f"torch {facts['torch']}, Python {facts['python']}, {versions}; {facts['cpu']}, "
        f"{facts['cores']} cores; commit {facts['commit']}; `{facts['command']}`.",
        "Microseconds per call, the median. *host*: until the call returns, with a short queue; "
        "*synchronised*: until the result is there; *device*: between events around calls that "
        "were queued before the first began.",
    ]
    sections = content["sections"]
    rows = [Row(**row) for section in sections.values() for row in section.get("rows", ())]
    parts = [*head]
    if rows:
        parts += ["## Goals", goals(rows, sections)]
    for name, section in sections.items():
        parts.append(f"## {name}")
        if "rows" in section:
            parts.append(table([Row(**row) for row in section["rows"]]))
        else:
            parts.append(_outcome(section))
    return "\n\n".join(parts) + "\n"


def table(rows: Sequence[Row]) -> str:
    """Return all rows; the ratios say how many times as long `eager` and the compilers take."""
    header = ["case", "subject", *(f"{what} us" for what in TIMES)]
    header += [f"{peer} /" for peer in PEERS]
    medians = {(row.case, row.subject): row.median_us for row in rows}
    lines = []
    for row in rows:
        line = [row.case, row.subject]
        if row.failure:
            # One line of the table, whatever the text has in it.
            text = " ".join(row.failure.replace("|", "/").split())
            lines.append([*line, text, *[""] * (len(header) - 3)])
            continue
        line += [microseconds(row.median_us.get(what)) for what in TIMES]
        ours = row.median_us.get("synchronised")
        line += [
            ratio(medians.get((row.case, peer), {}).get("synchronised"), ours) for peer in PEERS
        ]
        lines.append(line)
    return format_table(header, lines, markdown=True)


def goals(rows: Sequence[Row], sections: Mapping[str, Any]) -> str:
    """Return what the numbers should be beside what they are."""
    times = {(row.case, row.subject): row.median_us for row in rows if not row.failure}

    def of(case: str, subject: str, what: str) -> float | None:
        return times.get((case, subject), {}).get(what)

    lines = [_launch_goal(of), *_graph_goals(of)]
    for peer, least in zip(PEERS, (4, 3, 1.5), strict=True):
        lines.append(
            [f"pointwise100: {peer} / hostjit", f"{least}x", _ratios(of, "pointwise100", [peer])]
        )
    for case in ("policy_b1", "block_token", "block_b1"):
        lines.append([f"{case}: the best of the three / hostjit", "1.5x", _ratios(of, case, PEERS)])
    lines.append(_bandwidth_goal(sections.get("bandwidth", {})))
    return format_table(["", "goal", "measured"], lines, markdown=True)


def _launch_goal(of: Any) -> list[str]:
    bare = of(CHAIN, "driver: launch", "host")
    way = "hostjit_graphs_off" if of(CHAIN, "hostjit_graphs_off", "host") else OURS
    many, one = of(CHAIN, way, "host"), of(CHAIN, f"{way}_1", "host")
    measured = ""
    if bare and many and one:
        each = (many - one) / (LAUNCHES - 1)
        measured = f"{each:.3f} us, {each * LAUNCHES / bare:.2f} times {bare / LAUNCHES:.3f} us"
    return ["host time of one launch_kernel, against a loop of cuLaunchKernel", "1.25", measured]


def _graph_goals(of: Any) -> list[list[str]]:
    bare = of(CHAIN, "driver: graph_launch", "host")
    lines = []
    for suffix, what, most in (("", "no", 3), ("_other_input", "one", 5)):
        time = of(CHAIN, f"hostjit_graphs_on{suffix}", "host")
        measured = f"{time - bare:.2f} us beyond {bare:.2f} us" if time and bare else ""
        title = f"graph replay with {what} changed address, beyond cuGraphLaunch"
        lines.append([title, f"{most} us", measured])
    return lines


def _bandwidth_goal(section: Mapping[str, Any]) -> list[str]:
    kernels = (section.get("measured") or {}).get("kernels", ())
    fractions = [kernel["of_largest_copy"] for kernel in kernels if "failed" not in kernel]
    measured = ""
    if fractions:
        slow = sum(fraction < 0.85 for fraction in fractions)
        measured = f"{min(fractions):.0%} to {max(fractions):.0%}"
        measured += f", {slow} of {len(fractions)} below" if slow else ""
    return ["kernels on large tensors, of the bandwidth of a copy", "85%", measured]


def _ratios(of: Any, case: str, peers: Sequence[str]) -> str:
    """Say how many times as long the fastest peer takes, by host time and until the result."""
    found = []
    for what in ("host", "synchronised"):
        ours = of(case, OURS, what)
        best = min((time for peer in peers if (time := of(case, peer, what))), default=None)
        if text := ratio(best, ours):
            found.append(f"{text} {what}")
    return ", ".join(found)


def _outcome(section: Mapping[str, Any]) -> str:
    status = "stopped: out of time" if section["status"] is None else f"status {section['status']}"
    text = "\n".join(section["output"])
    return f"`{section['command']}`: {status}, {section['seconds']:.0f} s\n\n```\n{text}\n```"
