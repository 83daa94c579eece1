# SPDX-License-Identifier: Apache-2.0
"""The time of every node of a compiled program."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from hostjit import _C
from hostjit.node_costs import node_bytes, node_flops, node_result

__all__ = ["Profile", "ProfileEntry", "profile_calls"]

# Nanoseconds. Shorter nodes are done while the clock is read: a rate would mean nothing.
_SHORTEST_RATED = 5.0


@dataclass(frozen=True)
class ProfileEntry:
    """One node that has code.

    `index` is its place in the body of the Host IR; `name` is the kernel or the operator;
    `nanoseconds` is the mean over the middle half of the calls, of the host; `flops` is None where
    it is not known. `device_nanoseconds` is the time between two events on the stream of a CUDA
    device, around the node; None for a node that gives it no work.
    """

    index: int
    op: str
    name: str
    result: str
    nanoseconds: float
    bytes: int
    flops: int | None
    location: str
    device_nanoseconds: float | None = None


@dataclass(frozen=True)
class Profile:
    """What the nodes of a program take; `str()` gives the table.

    The last entry, `return`, is the making of what a call returns. `call_nanoseconds` is a whole
    call of the code that is not timed, likewise: checks and Python's part included, and with all
    that runs at once when no clock stands between two nodes. CUDA graphs are not used meanwhile.
    """

    entries: tuple[ProfileEntry, ...]
    call_nanoseconds: float
    calls: int

    @property
    def total_nanoseconds(self) -> float:
        """The sum over the entries."""
        return sum(entry.nanoseconds for entry in self.entries)

    @property
    def total_device_nanoseconds(self) -> float:
        """The sum over the entries; on several streams, work may be done at the same time."""
        return sum(entry.device_nanoseconds or 0 for entry in self.entries)

    def __str__(self) -> str:
        """Return a line per node in the order of the program, then the sums."""
        header = ("node", "op", "name", "result", "ns", "%", "bytes", "flops", "GB/s", "GFLOP/s")
        total = self.total_nanoseconds
        # Rates are of the device where it does the work.
        on_device = any(entry.device_nanoseconds is not None for entry in self.entries)
        lines: list[tuple[str, ...]] = [(*header, *(["device ns"] * on_device), "location")]
        for entry in self.entries:
            costs = _costs(entry, total)
            words = (str(entry.index), entry.op, entry.name, entry.result)
            device = entry.device_nanoseconds
            lines.append((*words, *costs, *([_known(device)] * on_device), entry.location))
        all_bytes = sum(entry.bytes for entry in self.entries)
        all_flops = sum(entry.flops or 0 for entry in self.entries)
        device = self.total_device_nanoseconds if on_device else None
        whole = ProfileEntry(0, "", "", "", total, all_bytes, all_flops, "", device)
        lines.append(
            ("", "total", "", "", *_costs(whole, total), *([_known(device)] * on_device), "")
        )
        rest = [""] * (6 + on_device)
        lines.append(("", "call", "", "", _number(self.call_nanoseconds), *rest))
        return _aligned(lines, left={1, 2, 3, 10 + on_device})

    __repr__ = __str__


def profile_calls(program: _C.CompiledProgram, call: Callable[[], Any], calls: int) -> Profile:
    """Measure the nodes of `program` in `calls` runs of `call`, after as many of the usual code.

    Raises hostjit.Error when a call does not run the program, and what a call raises.
    """
    whole = []
    for _ in range(calls):
        begin = time.perf_counter_ns()
        call()
        whole.append(time.perf_counter_ns() - begin)
    program.begin_timing()
    try:
        times = []
        for _ in range(calls):
            program.take_node_times()
            call()
            times.append(program.take_node_times())
            if not times[-1][0]:
                raise _C.Error(
                    f"program '{program.program.name}' did not run at the call that should profile "
                    "it: each call compiles anew"
                )
    finally:
        program.end_timing()
    sizes = program.last_sizes
    measured = program.program if sizes is None else program.row_program(sizes)
    return Profile(_entries(measured.ops, times), _typical(whole), calls)


def _entries(ops: Sequence[_C.Op], times: Sequence[Sequence[int]]) -> tuple[ProfileEntry, ...]:
    """Times of each call: twice the begin, an entry per op (0: no code), the end; device times."""
    clock = _typical(run[1] - run[0] for run in times)
    entries = []
    before = 1
    for place in range(2, len(ops) + 3):
        if not times[0][place]:
            continue
        elapsed = _typical(run[place] - run[before] for run in times)
        on_device = [run[place + len(ops) + 1] for run in times if place < len(ops) + 2]
        device = _typical(on_device) if any(on_device) else None
        entries.append(_entry(ops, place - 2, max(0.0, elapsed - clock), device))
        before = place
    return tuple(entries)


def _typical(values: Iterable[int]) -> float:
    """Return the mean of the middle half: finer than the clock, and free of interruptions."""
    ordered = sorted(values)
    outside = len(ordered) // 4
    return fmean(ordered[outside : len(ordered) - outside])


def _entry(
    ops: Sequence[_C.Op], index: int, nanoseconds: float, device_nanoseconds: float | None
) -> ProfileEntry:
    if index == len(ops):
        return ProfileEntry(index, "return", "", "", nanoseconds, 0, None, "")
    op = ops[index]
    name = str(op.fields.get("kernel") or op.fields.get("target") or "")
    return ProfileEntry(
        index,
        op.name,
        name,
        node_result(op),
        nanoseconds,
        node_bytes(op),
        node_flops(op),
        op.location,
        device_nanoseconds,
    )


def _costs(entry: ProfileEntry, total: float) -> tuple[str, ...]:
    worked = entry.nanoseconds if entry.device_nanoseconds is None else entry.device_nanoseconds

    def rate(amount: int | None) -> str:
        return _number(amount / worked) if amount and worked >= _SHORTEST_RATED else ""

    share = f"{100 * entry.nanoseconds / total:.1f}" if total else ""
    amounts = (str(entry.bytes or ""), str(entry.flops or ""))
    rates = (rate(entry.bytes), rate(entry.flops))
    return (_number(entry.nanoseconds), share, *amounts, *rates)


def _known(value: float | None) -> str:
    return "" if value is None else _number(value)


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _aligned(lines: Sequence[tuple[str, ...]], left: set[int]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
