# SPDX-License-Identifier: Apache-2.0
"""Run cases in processes of their own: one that crashes or hangs fails, and the run goes on."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from conformance.case import Case

__all__ = ["CRASH", "TIMEOUT", "Outcome", "run_cases"]

CRASH = "crash"
TIMEOUT = "timeout"
# A process that compiled this many cases makes room for a new one: code is never unloaded.
_CASES_PER_PROCESS = 150
_ROOT = Path(__file__).parents[2]


@dataclasses.dataclass
class Outcome:
    """What became of a case.

    Attributes:
        calls: how many calls were compared; a crash or a timeout ends a case.
        failures: (index of the call, kind, message), at most one for each call; those that the
            subject ran eagerly are among them.
    """

    case: Case
    calls: int = 0
    failures: list[tuple[int, str, str]] = dataclasses.field(default_factory=list)


def run_cases(
    cases: Sequence[Case],
    *,
    through: str = "hostjit.compile",
    limit: int | None = None,
    jobs: int = 1,
    seconds: float = 120,
    device: str = "cpu",
    total_seconds: float = math.inf,
    report: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run cases and return their outcomes, in the order of `cases`: of those that had a turn.

    Args:
        cases: which.
        through: the name of a subject, see `conformance.subjects`.
        limit: calls of one case at most; None for all.
        jobs: processes at a time.
        seconds: time limit of one call.
        device: "cpu" or "cuda", where the arguments are.
        total_seconds: after these no further case is begun.
        report: called with each outcome when it is there.
    """
    waiting: queue.SimpleQueue[list[Case]] = queue.SimpleQueue()
    size = max(1, min(_CASES_PER_PROCESS, -(-len(cases) // jobs)))
    for start in range(0, len(cases), size):
        waiting.put(list(cases[start : start + size]))
    deadline = time.monotonic() + total_seconds
    found: dict[Case, Outcome] = {}
    lock = threading.Lock()

    def work() -> None:
        while True:
            try:
                batch = waiting.get_nowait()
            except queue.Empty:
                return
            for outcome in _run_batch(batch, (through, str(limit or 0), device), seconds, deadline):
                with lock:
                    found[outcome.case] = outcome
                    report(outcome)

    with tempfile.TemporaryDirectory(prefix="hostjit-conformance-") as directory:
        # Unless the caller named one, the object cache is that of this run.
        mine = "HOSTJIT_CACHE_DIR" not in os.environ
        if mine:
            os.environ["HOSTJIT_CACHE_DIR"] = directory
        try:
            threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            if mine:
                del os.environ["HOSTJIT_CACHE_DIR"]
    return [found[case] for case in cases if case in found]


def _run_batch(
    batch: list[Case], arguments: Sequence[str], seconds: float, deadline: float
) -> Iterator[Outcome]:
    """Run one process after the other until every case has its outcome, or the time is over."""
    while batch and time.monotonic() < deadline:
        with _Worker(batch, arguments) as worker:
            outcome = Outcome(batch[0])
            while batch and time.monotonic() < deadline:
                event = worker.next_event(seconds)
                match event["event"]:
                    case "call":
                        outcome.calls = event["index"] + 1
                    case "finding":
                        outcome.failures.append((event["index"], event["kind"], event["message"]))
                    case "done":
                        outcome.calls = event["calls"]
                    case "ended":
                        failure = (max(0, outcome.calls - 1), event["kind"], event["message"])
                        outcome.failures.append(failure)
                if event["event"] in ("done", "ended"):
                    yield outcome
                    batch = batch[1:]
                    if event["event"] == "ended":
                        break
                    outcome = Outcome(batch[0]) if batch else outcome


class _Worker:
    """A process that runs cases, and the events that it tells."""

    def __init__(self, cases: Sequence[Case], arguments: Sequence[str]) -> None:
        paths = [str(_ROOT / "tests"), str(_ROOT / "python"), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "conformance.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._names = "".join(f"{case}\n" for case in cases).encode()
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._write, daemon=True).start()

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._errors.close()

    def next_event(self, seconds: float) -> dict[str, Any]:
        """Return the next event; "ended" when the process died or took too long."""
        try:
            event = self._events.get(timeout=seconds)
        except queue.Empty:
            return {"event": "ended", "kind": TIMEOUT, "message": f"no answer in {seconds:g} s"}
        if event is not None:
            return event
        return {"event": "ended", "kind": CRASH, "message": self._last_words()}

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._events.put(json.loads(line))
        self._events.put(None)

    def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            with self._process.stdin as names:
                names.write(self._names)
        except OSError:
            pass  # it died: its events say so

    def _last_words(self) -> str:
        status = self._process.wait()
        reason = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"{reason}: {lines[-1]}" if status > 0 and lines else reason
