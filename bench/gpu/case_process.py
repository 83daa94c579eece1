# SPDX-License-Identifier: Apache-2.0
"""Cases in processes of their own: a subject that kills its process or poisons it fails alone.

A child tells events, one line of JSON each: {"event": "begin", "subject"} before it prepares a
subject, and with "" before it times them; {"event": "poisoned", "subject", "failure"} when its
device can't be used any more; {"event": "rows", "rows"} at the end.
"""

import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import measure
from side_by_side import PoisonedError, Row
from timing import Device

HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Request:
    """One case, as the process that measures it is told."""

    case: str
    device: str
    subjects: Sequence[str]
    rounds: int
    without: Sequence[str] = ()


def run_case(request: Request, limit_seconds: float) -> list[Row]:
    """Measure a case in a new process, again without each subject that ended one."""
    failures: dict[str, str] = {}
    while True:
        subject, failure, rows = _attempt(
            dataclasses.replace(request, without=tuple(failures)), limit_seconds
        )
        failed = [Row(request.case, name, text) for name, text in failures.items()]
        if rows is not None:
            return [*rows, *failed]
        print(f"{request.case}: {subject or 'timing'}: {failure}", file=sys.stderr)
        if not subject or subject in failures:
            return [*failed, Row(request.case, subject or "all", failure)]
        failures[subject] = failure


def _attempt(request: Request, limit_seconds: float) -> tuple[str, str, list[Row] | None]:
    """Return the subject that ended the process and how, or the rows."""
    subject, failure, rows = "", "", None
    text = json.dumps(dataclasses.asdict(request))
    command = [sys.executable, str(HERE), "--request", text, "--device", request.device]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        timer = threading.Timer(limit_seconds, process.kill)
        timer.start()
        for line in process.stdout:
            event = json.loads(line)
            match event["event"]:
                case "begin":
                    subject = event["subject"]
                case "poisoned":
                    subject, failure = event["subject"], event["failure"]
                case "rows":
                    rows = [Row(**row) for row in event["rows"]]
        status = process.wait()
        late = not timer.is_alive()
        timer.cancel()
    if late:
        failure = f"FAILED no answer in {limit_seconds:g} s"
    return subject, failure or f"FAILED the process ended with status {status}", rows


def answer(text: str) -> int:
    """Measure what the request says, and tell events on the standard output."""
    # Compilers may print; the events keep the pipe to themselves.
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    request = Request(**json.loads(text))

    def tell(event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), file=events, flush=True)

    def begin(subject: str) -> None:
        print(f"{request.case}: {subject or 'timing'}", file=sys.stderr, flush=True)
        tell("begin", subject=subject)

    try:
        rows = measure(
            request.case,
            Device(request.device),
            request.subjects,
            request.without,
            request.rounds,
            begin,
        )
    except PoisonedError as error:
        tell("poisoned", subject=error.subject, failure=error.failure)
        # Nothing that runs at exit could use the device.
        os._exit(1)
    tell("rows", rows=[dataclasses.asdict(row) for row in rows])
    return 0
