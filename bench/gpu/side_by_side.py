# SPDX-License-Identifier: Apache-2.0
"""Candidates of one case: prepared one after the other, then timed in turns, in one process."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from latency import describe_error
from measure import Timed, Timing, interleave
from timing import Device, DeviceTimed, HostTimed, SynchronisedTimed

# What is timed of a candidate: names of the columns, in their order.
TIMES = ("host", "synchronised", "device")


@dataclass
class Row:
    """One subject in one case; times in microseconds per call, by the names of `TIMES`.

    A time that has no meaning is left out: the device time of a call that queues nothing. `failure`
    says why there are none.
    """

    case: str
    subject: str
    failure: str | None = None
    median_us: dict[str, float] = field(default_factory=dict)
    quartiles_us: dict[str, tuple[float, float]] = field(default_factory=dict)
    rounds: int = 0
    prepare_s: float = 0.0


@dataclass
class Candidate:
    """What is timed, and a last look at its result; `check` raises where it is wrong."""

    timed: dict[str, Timed]
    check: Callable[[], None] = lambda: None


def candidate(
    device: Device,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    blocking: Callable[..., Any] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Candidate:
    """Time a call in every way.

    Args:
        device: what the call queues work on, as a rule on the current stream.
        function: returns when the work is queued.
        arguments: of the call.
        blocking: the same call until its result is there, of a system with streams of its own.
        check: raises where the results are not eager's.
    """
    timed: dict[str, Timed] = {
        "host": HostTimed(device, function, arguments),
        "synchronised": SynchronisedTimed(device, blocking or function, arguments),
    }
    if device.is_cuda and blocking is None:
        timed["device"] = DeviceTimed(device, function, arguments)
    return Candidate(timed, check)


class PoisonedError(Exception):
    """The process can't use its device any more: `subject` was at work."""

    def __init__(self, subject: str, failure: str) -> None:
        super().__init__(failure)
        self.subject = subject
        self.failure = failure


def compare(
    case: str,
    device: Device,
    preparations: Mapping[str, Callable[[], Candidate]],
    rounds: int,
    begin: Callable[[str], None],
) -> list[Row]:
    """Prepare each candidate, time those that work in turns, and check them once more.

    Args:
        case: the name for the rows.
        device: what they run on.
        preparations: makes each candidate; raises where its results are not eager's.
        rounds: how often each is timed.
        begin: told the name of each subject before it is prepared.
    """
    rows = {name: Row(case, name) for name in preparations}
    ready: dict[str, Candidate] = {}
    for name, prepare in preparations.items():
        begin(name)
        start = time.perf_counter()
        try:
            ready[name] = prepare()
            for timed in ready[name].timed.values():
                timed.settle()
        except Exception as error:
            ready.pop(name, None)
            rows[name].failure = describe_error(error)
            _look_at(device, name, error)
        rows[name].prepare_s = round(time.perf_counter() - start, 3)
    begin("")
    keys = [(name, what) for name in ready for what in ready[name].timed]
    timings = interleave([ready[name].timed[what] for name, what in keys], rounds)
    for (name, what), timing in zip(keys, timings, strict=True):
        _enter(rows[name], what, timing)
    for name, one in ready.items():
        try:
            one.check()
        except Exception as error:
            rows[name] = Row(case, name, f"after timing: {describe_error(error)}")
            _look_at(device, name, error)
    return list(rows.values())


def _enter(row: Row, what: str, timing: Timing) -> None:
    ordered = sorted(seconds * 1e6 for seconds in timing.rounds)
    last = len(ordered) - 1
    row.median_us[what] = round(timing.median * 1e6, 4)
    row.quartiles_us[what] = (round(ordered[last // 4], 4), round(ordered[last * 3 // 4], 4))
    row.rounds = len(ordered)


def _look_at(device: Device, subject: str, error: Exception) -> None:
    try:
        device.synchronise()
    except Exception as lasting:
        raise PoisonedError(subject, f"{describe_error(error)}; {lasting}") from error
