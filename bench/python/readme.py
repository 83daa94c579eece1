# SPDX-License-Identifier: Apache-2.0
"""Puts measured numbers into the README, with the machine and the command.

python bench/python/latency.py --json latency.json
python bench/python/first_call.py --json first_call.json
python bench/python/readme.py latency.json first_call.json
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import first_call
from report import Row, summary

README = Path(__file__).parents[2] / "README.md"
BEGIN = "<!-- measured: begin. Written by bench/python/readme.py. -->"
END = "<!-- measured: end -->"


def main(files: Sequence[str]) -> None:
    """Replace what stands between the two marks by a section for each file."""
    sections = [section(json.loads(Path(file).read_text())) for file in files]
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text("\n\n".join([before + BEGIN, *sections, END]) + after)


def section(content: dict[str, Any]) -> str:
    machine = content["machine"]
    if "rows" in content:
        numbers = summary([Row(**row) for row in content["rows"]], markdown=True)
        what = "Microseconds per call"
    else:
        numbers = first_call.table(content["workload"], content["seconds"], markdown=True)
        what = "Seconds to the first result in a new process"
    packages = machine.get("packages", {})
    peers = [f"{name} {packages[name]}" for name in packages if name != "hostjit"]
    place = f"{machine['cpu']}, {machine['simd']}, {machine['cores']} cores"
    versions = ", ".join([f"Python {machine['python']}", f"torch {machine['torch']}", *peers])
    return f"{what}; {place}; {versions}; `{machine['command']}`:\n\n{numbers}"


if __name__ == "__main__":
    main(sys.argv[1:])
