# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' models: JIT, evaluator and eager agree, and the scripts report it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "python"


def test_workloads_agree_with_eager(tmp_path: Path) -> None:
    report = tmp_path / "latency.json"
    peers = ["eager", "hostjit", "hostjit_evaluator"]
    command = [sys.executable, str(BENCH / "latency.py"), "--rounds", "1", "--json", str(report)]
    done = subprocess.run(
        [*command, "--peers", ",".join(peers)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(report.read_text())["rows"]
    assert len(rows) == 6 * len(peers)
    assert [row["peer"] for row in rows if row["failure"]] == []


def test_unknown_peer_is_named() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "latency.py"), "--peers", "eager,nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "unknown: nothing; there are: eager, compile," in done.stderr


def test_training_agrees_with_eager(tmp_path: Path) -> None:
    report = tmp_path / "training.json"
    command = [sys.executable, str(BENCH / "training.py"), "--rounds", "1", "--json", str(report)]
    trainers = ["--trainers", "eager,hostjit", "--workloads", "policy_b1,lnmlp_b1"]
    done = subprocess.run([*command, *trainers], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(report.read_text())["rows"]) == 4


def test_replays_agree_with_eager(tmp_path: Path) -> None:
    report = tmp_path / "replay.json"
    command = [sys.executable, str(BENCH / "replay.py"), "--rounds", "1", "--json", str(report)]
    options = ["--ways", "eager,capture,capture_reuse", "--workloads", "add2,add16,chain1,chain5"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(report.read_text())["rows"]) == 12
    assert "capture: " in done.stdout


@pytest.mark.parametrize(
    ("script", "compilers", "cases"),
    [
        ("parts", ["eager", "hostjit"], 24),
        ("given_objects", ["eager", "compile_hostjit", "hostjit"], 4),
    ],
)
def test_compilers_agree_with_eager(
    script: str, compilers: list[str], cases: int, tmp_path: Path
) -> None:
    report = tmp_path / f"{script}.json"
    command = [sys.executable, str(BENCH / f"{script}.py"), "--rounds", "1", "--json", str(report)]
    options = ["--compilers", ",".join(compilers)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(report.read_text())["rows"]) == cases * len(compilers)


def test_blocks_of_the_sweep_agree_with_eager(tmp_path: Path) -> None:
    report = tmp_path / "sweep.json"
    command = [sys.executable, str(BENCH / "sweep.py"), "--against", "eager", "--rounds", "1"]
    grid = ["--hidden", "16", "--batch", "1,3", "--threads", "1"]
    done = subprocess.run(
        [*command, *grid, "--json", str(report)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    points = json.loads(report.read_text())["points"]
    assert len(points) == 8 * 2
    assert "geometric mean over 8 points of batch 1: eager takes" in done.stdout


def test_memory_is_planned_near_the_lower_bound() -> None:
    models = "policy_b1,lnmlp_b1,chain32,perceptron,encoder2,decoder,lstm2,gru2"
    command = [sys.executable, str(BENCH / "memory.py"), "--models", models, "--most", "1.05"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "times the lower bound" in done.stdout.splitlines()[-1]


def test_kernels_reports_every_case_beside_the_roofline() -> None:
    command = [sys.executable, str(BENCH / "kernels.py"), "--rounds", "1", "--elements", "16"]
    done = subprocess.run(
        [*command, "--families", "reductions,products"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[-3:] == ["%", "of", "roofline"]
    assert sum(line.startswith(("reductions", "products")) for line in lines) == 8 + 7
    assert lines[-1].startswith("peak ")


def test_saved_files_agree_with_eager(tmp_path: Path) -> None:
    report = tmp_path / "saved.json"
    command = [sys.executable, str(BENCH / "saved.py"), "--models", "policy_b1", "--processes", "1"]
    done = subprocess.run(
        [*command, "--json", str(report)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    times = json.loads(report.read_text())["times"]["policy_b1"]
    assert [len(times[way]) for way in ("load", "compile")] == [1, 1]
