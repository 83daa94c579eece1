# SPDX-License-Identifier: Apache-2.0
"""Bytes of the arena of every model beside the lower bound and the bytes without sharing.

python bench/python/memory.py
python bench/python/memory.py --models encoder,lstm --most 1.05
"""

import argparse
import json
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import machine
import torch
from memory_models import MODELS
from names import names_of
from report import format_table
from workloads import Workload

import hostjit


@dataclass(frozen=True)
class Row:
    """The memory of one model's program. `unshared`: the bytes if no buffer shared any."""

    model: str
    buffers: int
    planned: int
    lower_bound: int
    unshared: int

    @property
    def ratio(self) -> float:
        """Return the planned bytes by the least that can do."""
        return self.planned / self.lower_bound if self.lower_bound else 1.0


def main() -> int:
    arguments = parse()
    rows = [measure(MODELS[name]) for name in arguments.models]
    print(table(rows, arguments.markdown))
    worst = max(rows, key=lambda row: row.ratio)
    print(f"\nmost: {worst.ratio:.3f} times the lower bound, {worst.model}")
    if arguments.json:
        content = {"machine": machine.facts(), "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 1 if arguments.most and worst.ratio > arguments.most else 0


def measure(model: Workload) -> Row:
    """Compile a model, check it and read the report of its memory."""
    module, inputs = model.module(), model.inputs()
    fast = hostjit.compile(module)
    with torch.no_grad():
        torch.testing.assert_close(fast(*inputs), module(*inputs), rtol=1e-4, atol=1e-4)
    report = fast.memory_plan()
    planned, bound, unshared = (
        number(rf"{what} (\d+) bytes", report) for what in ("arena", "lower bound", "sharing")
    )
    return Row(model.name, number(r": (\d+) of", report), planned, bound, unshared)


def number(pattern: str, text: str) -> int:
    """Return what stands at the place of the pattern's group."""
    found = re.search(pattern, text)
    assert found, f"no {pattern!r} in {text!r}"
    return int(found[1])


def table(rows: list[Row], markdown: bool) -> str:
    """Return a line per model; the ratios are to the lower bound and of the unshared bytes."""
    header = ["model", "buffers", "planned", "lower bound", "ratio", "unshared", "unshared /"]
    lines = [
        [
            row.model,
            str(row.buffers),
            str(row.planned),
            str(row.lower_bound),
            f"{row.ratio:.3f}",
            str(row.unshared),
            f"{row.unshared / row.planned:.1f}x" if row.planned else "",
        ]
        for row in rows
    ]
    return format_table(header, lines, markdown)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Bytes of the arena of every model beside the lower bound."
    )
    parser.add_argument("--models", type=names_of(MODELS), default=list(MODELS), metavar="A,B")
    parser.add_argument("--most", type=float, help="fail where the ratio is larger")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all numbers here")
    parser.add_argument("--markdown", action="store_true", help="print the table for a page")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
