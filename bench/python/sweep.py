# SPDX-License-Identifier: Apache-2.0
"""hostjit against the better of eager and torch.compile, over hidden sizes, batches and threads.

python bench/python/sweep.py --quick
python bench/python/sweep.py --models policy,lnmlp --hidden 16,64 --batch 1,8 --against eager
"""

import argparse
import json
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import machine
import torch
from blocks import BLOCKS
from latency import available, measure
from names import names_of
from report import Row, format_table, microseconds, ratio

# hostjit may take this many times as long as the best peer before a point counts as lost: noise.
TOLERANCE = 1 / 0.97
AGAINST = ("eager", "compile", "compile_cpp_wrapper", "compile_freezing")


@dataclass(frozen=True)
class Point:
    """One model at one size, with the rows of hostjit and of each peer."""

    model: str
    hidden: int
    batch: int
    threads: int
    rows: list[Row]

    def median(self, peer: str) -> float | None:
        """Return microseconds per call, or None where the peer is absent or failed."""
        return next((row.median_us or None for row in self.rows if row.peer == peer), None)

    @property
    def best(self) -> Row | None:
        """Return the fastest row that isn't ours."""
        peers = [row for row in self.rows if row.peer != "hostjit" and not row.failure]
        return min(peers, key=lambda row: row.median_us, default=None)

    @property
    def advantage(self) -> float | None:
        """Return how many times as long the best peer takes; None where there's no comparison."""
        ours = self.median("hostjit")
        return self.best.median_us / ours if self.best and ours else None

    @property
    def verdict(self) -> str:
        """Return why the point isn't won, or nothing."""
        if failures := [f"{row.peer}: {row.failure}" for row in self.rows if row.failure]:
            return "; ".join(failures)
        return "slower" if self.advantage and self.advantage * TOLERANCE < 1 else ""


def main() -> int:
    arguments = parse()
    points: list[Point] = []
    # The larger number first: a process can give up cores and threads more easily than get them.
    for threads in sorted(arguments.threads, reverse=True):
        points += sweep(arguments, threads)
    print(table(points, arguments.against, arguments.markdown))
    print()
    print(conclusion(points))
    if arguments.json:
        content = {"machine": machine.facts(), "points": [asdict(point) for point in points]}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 1 if any(row.failure for point in points for row in point.rows) else 0


def sweep(arguments: argparse.Namespace, threads: int) -> list[Point]:
    """Measure the whole grid with one number of threads."""
    machine.pin(threads)
    # Inductor bakes the number of threads into its code, which its cache doesn't look at.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(arguments.cache / f"threads_{threads}")
    peers = available([*arguments.against, "hostjit"])
    points = []
    for model in arguments.models:
        for hidden in arguments.hidden:
            for batch in arguments.batch:
                workload = BLOCKS[model].workload(hidden, batch)
                torch.compiler.reset()
                with torch.no_grad():
                    rows = measure(workload, peers, arguments.rounds, threads, arguments.seconds)
                points.append(Point(model, hidden, batch, threads, rows))
    return points


def table(points: Sequence[Point], against: Sequence[str], markdown: bool) -> str:
    """Return a line per point; the last ratio says how many times as long the best peer takes."""
    header = ["model", "threads", "hidden", "batch", *against, "hostjit"]
    header += [*(f"{peer} / hostjit" for peer in against), "best / hostjit", "verdict"]
    lines = []
    for point in points:
        ours = point.median("hostjit")
        lines.append(
            [
                point.model,
                str(point.threads),
                str(point.hidden),
                str(point.batch),
                *(microseconds(point.median(peer)) for peer in (*against, "hostjit")),
                *(ratio(point.median(peer), ours) for peer in against),
                ratio(point.best.median_us if point.best else None, ours),
                point.verdict,
            ]
        )
    return format_table(header, lines, markdown)


def conclusion(points: Sequence[Point]) -> str:
    """Return how many points are won, the worst of the others, and the means over batch 1."""
    compared = [point for point in points if point.advantage]
    lost = [point for point in compared if point.verdict]
    lines = [f"{len(compared) - len(lost)} of {len(points)} points at or above 0.97 of the best"]
    for point in sorted(lost, key=lambda point: point.advantage or 0):
        name = f"{point.model}, {point.threads} threads, hidden {point.hidden}, batch {point.batch}"
        best = point.best.peer if point.best else ""
        lines.append(f"  {point.advantage or 0:.2f}x of {best}: {name}")
    for peer in dict.fromkeys(row.peer for point in points for row in point.rows):
        ratios = [
            theirs / ours
            for point in points
            if point.batch == 1
            and (theirs := point.median(peer))
            and (ours := point.median("hostjit"))
        ]
        if ratios and peer != "hostjit":
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines.append(f"geometric mean over {len(ratios)} points of batch 1: ")
            lines[-1] += f"{peer} takes {mean:.2f} times as long"
    return "\n".join(lines)


def numbers(text: str) -> list[int]:
    """Parse comma-separated whole numbers."""
    return [int(word) for word in text.split(",")]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="hostjit against the better of eager and torch.compile, over sizes.",
        epilog="models: "
        + "; ".join(f"{block.name} - {block.description}" for block in BLOCKS.values()),
    )
    parser.add_argument("--models", type=names_of(BLOCKS), default=list(BLOCKS), metavar="A,B")
    parser.add_argument("--hidden", type=numbers, default=[16, 64, 256, 1024], metavar="N,N")
    parser.add_argument("--batch", type=numbers, default=[1, 8, 64, 512], metavar="N,N")
    parser.add_argument("--threads", type=numbers, default=[1, 2], metavar="N,N")
    parser.add_argument(
        "--against", type=names_of(AGAINST), default=["eager", "compile"], metavar="A,B"
    )
    parser.add_argument("--rounds", type=int, default=31, help="at most, per point")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="stop a point's timing here, after 5 rounds"
    )
    parser.add_argument(
        "--quick", action="store_true", help="hidden 16 and 256, batch 1 and 64, 11 rounds"
    )
    default_cache = Path(tempfile.gettempdir()) / "hostjit_sweep"
    parser.add_argument(
        "--cache", type=Path, default=default_cache, help="what Inductor compiled, for the next run"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round here")
    parser.add_argument("--markdown", action="store_true", help="print the table for a page")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.hidden, arguments.batch, arguments.rounds = [16, 256], [1, 64], 11
    return arguments


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    sys.exit(main())
