# SPDX-License-Identifier: Apache-2.0
"""bench/gpu where there is no GPU: it writes nothing, and its parts do what they do there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
GPU = ROOT / "bench" / "gpu"
PATHS = [str(GPU), str(ROOT / "bench" / "python"), str(ROOT / "python")]

# A process of a case in which subject "b" ends the process, and "c" poisons its device.
CHILD = """
import json, os, sys

request = json.loads(sys.argv[2])
print(json.dumps({"event": "begin", "subject": "a"}), flush=True)
for name in ("b", "c"):
    if name not in request["without"]:
        print(json.dumps({"event": "begin", "subject": name}), flush=True)
        if name == "b":
            os._exit(7)
        print(json.dumps({"event": "poisoned", "subject": "c", "failure": "why"}), flush=True)
        os._exit(1)
print(json.dumps({"event": "begin", "subject": ""}), flush=True)
rows = [{"case": request["case"], "subject": "a", "median_us": {"host": 1.0}}]
print(json.dumps({"event": "rows", "rows": rows}), flush=True)
"""

PARENT = """
import sys
from pathlib import Path

import case_process

case_process.HERE = Path(sys.argv[1])
request = case_process.Request("case", "cpu", ["a", "b", "c"], rounds=1)
for row in case_process.run_case(request, limit_seconds=100):
    print(row.subject, row.failure, row.median_us)
"""

# A driver that does nothing: all of its functions are the same one.
DRIVER = """
#include <string.h>

static int nothing(void) { return 0; }
static int a_context(void **context) { *context = &a_context; return 0; }

int cuGetProcAddress_v2(const char *name, void **function) {
  *function = strcmp(name, "cuCtxGetCurrent") ? (void *)nothing : (void *)a_context;
  return 0;
}
int cuLaunchKernel(void) { return 0; }
"""

LOOPS = """
import torch

zeros = torch.zeros
torch.zeros = lambda *sizes, device: zeros(*sizes)
from floor import REPETITIONS, Floor, FloorTimed

floor = Floor()
for loop in REPETITIONS:
    for own_stream in (False, True):
        calls, seconds = FloorTimed(floor, loop, own_stream).batch()
        assert calls == REPETITIONS[loop] and 0 <= seconds < 1
REPETITIONS["other"] = 1
try:
    floor.seconds("other", own_stream=False)
except RuntimeError as error:
    print(error)
"""

RESULTS = """
import sys
from pathlib import Path

import command_line
import gpu_machine

path = Path(sys.argv[1]) / "results" / "page.json"
facts = gpu_machine.facts("abc") | {"gpu": "Some GPU", "driver_version": "1.2"}

def row(case, subject, time):
    return {"case": case, "subject": subject, "median_us": {"host": time, "synchronised": time}}

def add(facts, section, *rows):
    content = command_line._content_of(path, facts)
    command_line._enter(content["sections"], section, {"rows": list(rows)})
    command_line._write(path, content)
    return path.with_suffix(".md").read_text()

add(facts, "calls", row("policy_b1", "eager", 30.0), row("policy_b1", "hostjit", 5.0))
add(facts, "calls", row("block_b1", "eager", 90.0))
page = add(facts, "calls", row("policy_b1", "eager", 40.0), row("policy_b1", "hostjit", 5.0))
for line in page.splitlines():
    if "policy_b1" in line or "block_b1 | eager" in line or line.startswith("# "):
        print(line)
print("policy_b1 | eager" in add(facts | {"commit": "def"}, "calls"))
"""


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": paths} | environment,
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_nothing_is_written(tmp_path: Path) -> None:
    done = run(str(GPU), "--out", str(tmp_path))
    assert done.returncode == 2
    assert "Nothing is written that no GPU measured" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_cases_agree_with_eager_and_are_printed(tmp_path: Path) -> None:
    done = run(
        *(str(GPU), "--device", "cpu", "--sections", "calls,training", "--rounds", "1"),
        *("--cases", "pointwise100,launches100,block_token,train_policy_b1_fused"),
        *("--subjects", "eager,hostjit", "--out", str(tmp_path)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| train_policy_b1_fused | hostjit |" in done.stdout
    assert "FAILED" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_subject_that_ends_its_process_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text(CHILD)
    done = run("-c", PARENT, str(tmp_path))
    assert done.stdout.splitlines() == [
        "a None {'host': 1.0}",
        "b FAILED the process ended with status 7 {}",
        "c why {}",
    ], done.stderr


def test_the_loops_of_the_floor(tmp_path: Path) -> None:
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libcuda.so.1"
    compiler = os.environ.get("CC", "cc")
    source = str(tmp_path / "driver.c")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", str(library)], check=True)
    done = run("-c", LOOPS, LD_LIBRARY_PATH=str(tmp_path))
    assert done.stdout == "floor.cpp: no loop 'other'\n", done.stderr


def test_later_runs_add_to_the_page(tmp_path: Path) -> None:
    done = run("-c", RESULTS, str(tmp_path))
    lines = done.stdout.splitlines()
    assert lines[0].startswith("# Some GPU, 20"), done.stderr
    assert lines[1:] == [
        "| policy_b1: the best of the three / hostjit | 1.5x | 8.00x host, 8.00x synchronised |",
        "| block_b1 | eager | 90.0 | 90.0 |  | 1.00x |  |  |",
        "| policy_b1 | eager | 40.0 | 40.0 |  | 1.00x |  |  |",
        "| policy_b1 | hostjit | 5.000 | 5.000 |  | 8.00x |  |  |",
        "False",
    ]
