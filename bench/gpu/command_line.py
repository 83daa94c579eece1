# SPDX-License-Identifier: Apache-2.0
"""Measure hostjit on this machine's GPU, beside the driver and what people use instead."""

import argparse
import dataclasses
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import checks
import gpu_machine
from case_process import Request, answer, run_case
from cases import SECTIONS
from names import names_of
from side_by_side import Row
from subjects import SUBJECTS, prepare_environment
from tables import markdown, table

CHECKS = ("tests", "bandwidth", "conformance", "memcheck", "racecheck")
# The sanitizers make everything many times slower: who wants them names them.
DEFAULT = ("launches", "calls", "training", "tests", "bandwidth", "conformance")
RESULTS = checks.ROOT / "bench" / "results"


def main() -> int:
    options = _parser().parse_args()
    prepare_environment(options.device)
    if options.request:
        return answer(options.request)
    on_gpu = options.device == "cuda"
    if on_gpu and (reason := gpu_machine.why_none()):
        print(
            f"bench/gpu/run: {reason}\n"
            "Nothing is written that no GPU measured; --device cpu tries the scripts, and prints.",
            file=sys.stderr,
        )
        return 2
    facts = gpu_machine.facts(options.commit)
    path = options.out / f"{_file_name(facts)}.json" if on_gpu else None
    content = _content_of(path, facts)
    deadline = time.monotonic() + 60 * options.minutes
    measured = []
    for name in options.sections:
        section = _section(name, options, deadline)
        if section is None:
            continue
        measured.append(section)
        _enter(content["sections"], name, {"time": gpu_machine.now(), **section})
        if path is not None:
            _write(path, content)
    print(markdown(content))
    return 0 if all(map(_passed, measured)) else 1


def _section(name: str, options: argparse.Namespace, deadline: float) -> dict[str, Any] | None:
    """Return what a section measured; nothing, and say why, where it can't be."""
    if time.monotonic() > deadline:
        print(f"bench/gpu/run: no time left for {name}", file=sys.stderr)
        return None
    if name in SECTIONS:
        return {"rows": [dataclasses.asdict(row) for row in _rows(name, options, deadline)]}
    left = deadline - time.monotonic()
    known = checks.commands(minutes=0.9 * left / 60)
    if name not in known:
        print(f"bench/gpu/run: {name}: what it needs is not here", file=sys.stderr)
        return None
    return dataclasses.asdict(checks.run(known[name], left))


def _rows(section: str, options: argparse.Namespace, deadline: float) -> list[Row]:
    rows: list[Row] = []
    for case in SECTIONS[section][1]:
        left = deadline - time.monotonic()
        if case not in options.cases or left < 0:
            continue
        request = Request(case, options.device, options.subjects, options.rounds)
        rows += (found := run_case(request, min(left, options.seconds)))
        print(table(found), file=sys.stderr, flush=True)
    return rows


def _content_of(path: Path | None, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the results so far of the same code on the same machine, or none."""
    same = ("gpu", "driver_version", "torch", "commit")
    if path is not None and path.exists():
        content: dict[str, Any] = json.loads(path.read_text())
        if all(content["machine"].get(name) == facts.get(name) for name in same):
            return content
    return {"machine": facts, "sections": {}}


def _enter(sections: dict[str, Any], name: str, section: dict[str, Any]) -> None:
    """Put a section in the place of its last run, save cases that were not measured again."""
    if "rows" in section:
        cases = {row["case"] for row in section["rows"]}
        old = sections.get(name, {}).get("rows", ())
        section["rows"] = [row for row in old if row["case"] not in cases] + section["rows"]
    sections[name] = section


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    path.with_suffix(".md").write_text(markdown(content))


def _file_name(facts: dict[str, Any]) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", facts.get("gpu", "cpu").lower()).strip("-")
    return f"{facts['time'][:10]}-{name}"


def _passed(section: dict[str, Any]) -> bool:
    if "rows" in section:
        return not any(row["failure"] for row in section["rows"])
    return bool(section["status"] == 0)


def _parser() -> argparse.ArgumentParser:
    every_case = [case for _, cases in SECTIONS.values() for case in cases]
    parser = argparse.ArgumentParser(prog="bench/gpu/run", description=__doc__)
    sections = names_of([*SECTIONS, *CHECKS])
    parser.add_argument("--sections", type=sections, default=list(DEFAULT), metavar="A,B")
    parser.add_argument("--cases", type=names_of(every_case), default=every_case, metavar="A,B")
    parser.add_argument(
        "--subjects", type=names_of(SUBJECTS), default=list(SUBJECTS), metavar="A,B"
    )
    parser.add_argument("--rounds", type=int, default=51, help="at least 30 for a reported number")
    parser.add_argument("--minutes", type=float, default=60, help="time limit of the whole run")
    parser.add_argument("--seconds", type=float, default=300, help="time limit of one case")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--commit", default="", help="of the code, where it is no git repository")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--request", help=argparse.SUPPRESS)
    return parser
