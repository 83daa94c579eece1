# SPDX-License-Identifier: Apache-2.0
"""Models and programs of many kinds, compiled and compared with eager, each in a process.

python bench/survey
python bench/survey --modules text_decoders,agents --ways compile,train --json outcomes.jsonl
python bench/survey --cases sac_update,gan_step --limit 600
"""

from __future__ import annotations

import os

# Read when libraries are imported: nothing is looked for on a network, and one thread computes.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1")

import argparse
import contextlib
import dataclasses
import importlib
import json
import signal
import sys
import time
import warnings
from pathlib import Path

import torch
from cases import ModelCase, ProgramCase
from outcome import Outcome
from ways import MODEL_WAYS, PROGRAM_WAYS, Way

PROGRAMS = ("agents", "controllers", "generators", "number_types", "sequences")
MODELS = (
    "text_decoders",
    "text_encoders",
    "translators",
    "vision_models",
    "vision_and_text_models",
    "sound_models",
    "series_models",
)


def run(name: str, case: ModelCase | ProgramCase, way_name: str, way: Way) -> Outcome:
    outcome = Outcome(name, way_name)
    function, compiler = way
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function(case, compiler, outcome)
        except Exception as error:
            outcome.error = f"{type(error).__name__}: {error}"
    said = (str(warning.message) for warning in caught)
    outcome.warnings = [message for message in said if message.startswith("hostjit")]
    return outcome


def in_a_process(
    name: str, case: ModelCase | ProgramCase, way_name: str, way: Way, limit: float
) -> Outcome:
    """Fork, so that Dynamo knows nothing of other cases, and the libraries are loaded once."""
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        os.close(readable)
        with os.fdopen(writable, "w") as file:
            json.dump(dataclasses.asdict(run(name, case, way_name, way)), file)
        os._exit(0)
    os.close(writable)
    os.set_blocking(readable, False)
    text, deadline = b"", time.monotonic() + limit
    while True:
        with contextlib.suppress(BlockingIOError):
            text += os.read(readable, 1 << 20)
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(readable)
            return Outcome(name, way_name, error=f"took more than {limit:.0f} seconds")
        time.sleep(0.05)
    os.set_blocking(readable, True)
    while more := os.read(readable, 1 << 20):
        text += more
    os.close(readable)
    if status:
        return Outcome(name, way_name, error=f"ended with status {status}")
    return Outcome(**json.loads(text))


def line(outcome: Outcome) -> str:
    """Return a row of a Markdown table."""
    equal = outcome.error or "; ".join(outcome.differences[:2]) or f"{outcome.largest_error:.0e}"
    said = next((message.split(": ", 2)[1] for message in outcome.warnings), "")
    times = (outcome.eager_microseconds, outcome.microseconds)
    shown = " | ".join("" if time is None else f"{time:.0f}" for time in times)
    seconds = ", ".join(f"{each:.1f}" for each in outcome.first_calls[:3])
    row = f"| {outcome.case} | {outcome.way} | {equal[:80]} | {outcome.programs or ''} "
    return f"{row}| {seconds} | {shown} | {said.split(':')[0][:60]} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", default=",".join((*PROGRAMS, *MODELS)))
    parser.add_argument("--cases", default="", help="names; all of the modules without it")
    parser.add_argument("--ways", default="compile", help=", ".join(MODEL_WAYS))
    parser.add_argument("--limit", type=float, default=600, help="seconds for a case")
    parser.add_argument("--json", type=Path, help="where outcomes are written, one a line")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| case | way | largest error | programs | first calls, s | eager, us | hostjit, us | |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | --- |", flush=True)
    failed = False
    for module in arguments.modules.split(","):
        for name, case in importlib.import_module(module).CASES.items():
            if arguments.cases and name not in arguments.cases.split(","):
                continue
            ways = MODEL_WAYS if isinstance(case, ModelCase) else PROGRAM_WAYS
            for way in arguments.ways.split(","):
                if way not in ways or (way.startswith("generate") and not case.generates):
                    continue
                outcome = in_a_process(name, case, way, ways[way], arguments.limit)
                failed |= bool(outcome.error or outcome.differences)
                print(line(outcome), flush=True)
                if arguments.json:
                    with arguments.json.open("a") as file:
                        file.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
