# SPDX-License-Identifier: Apache-2.0
"""The six workloads of the benchmark: JIT, evaluator and eager agree, and the script reports it."""

import json
import subprocess
import sys
from pathlib import Path

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
