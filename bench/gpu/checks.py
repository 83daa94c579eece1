# SPDX-License-Identifier: Apache-2.0
"""The sections of a run that are programs of their own: tests, conformance, bandwidth, memory."""

import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NUMBERS = "NUMBERS.json"
# What is kept of a program's output: its last lines have the summary.
_LINES = 60
# Of tests; each has a context of its own on the device.
_PROCESSES = "8"


@dataclass(frozen=True)
class Outcome:
    """How a program ended.

    Attributes:
        status: its exit status; None when it was stopped for the time it took.
        output: its last lines.
        measured: what it wrote, where it writes numbers.
    """

    command: str
    status: int | None
    seconds: float
    output: list[str]
    measured: dict[str, Any] | None = None


def commands(minutes: float) -> dict[str, list[str]]:
    """Return the command of each section; some need a program that may not be there.

    `NUMBERS` among the arguments stands for a file that the program writes.
    """
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    tests += ["tests/gpu", "--ignore", "tests/gpu/test_conformance_on_gpu.py"]
    side_by_side = ["-n", _PROCESSES] if importlib.util.find_spec("xdist") else []
    found = {
        "tests": [*tests, *side_by_side],
        "conformance": [
            *(sys.executable, "tests/conformance", "--device", "cuda", "--sample"),
            *("--calls", "2", "--minutes", f"{minutes:g}"),
        ],
        "bandwidth": [sys.executable, "bench/gpu/kernels.py", "--json", NUMBERS],
    }
    if sanitizer := shutil.which("compute-sanitizer"):
        # Errors that the tests provoke are those of calls, or in processes of their own.
        options = ["--error-exitcode=86", "--report-api-errors=no"]
        options += ["--target-processes=application-only"]
        for tool in ("memcheck", "racecheck"):
            found[tool] = [sanitizer, f"--tool={tool}", *options, *tests]
    return found


def run(command: list[str], limit_seconds: float) -> Outcome:
    """Run a program from the root of the repository; what it prints is shown and kept."""
    shown = shlex.join(["python" if part == sys.executable else part for part in command])
    print(f"=== {shown}", file=sys.stderr, flush=True)
    begin = time.monotonic()
    scratch = tempfile.TemporaryDirectory(prefix="hostjit-bench-")
    numbers = Path(scratch.name) / NUMBERS
    arguments = [str(numbers) if part == NUMBERS else part for part in command]
    process = subprocess.Popen(
        arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=limit_seconds)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # its own session: nothing of ours is in it
        output, _ = process.communicate()
        status = None
    print(output, file=sys.stderr, flush=True)
    lines = output.strip().splitlines()[-_LINES:]
    measured = json.loads(numbers.read_text()) if numbers.exists() else None
    scratch.cleanup()
    return Outcome(shown, status, round(time.monotonic() - begin, 1), lines, measured)
