# SPDX-License-Identifier: Apache-2.0
"""Seconds from `import torch` to the first result, in new processes with cold and warm caches.

python bench/python/first_call.py
python bench/python/first_call.py --peers hostjit,compile,onnxruntime --processes 7
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine
from names import names_of
from peers import PEERS
from report import format_table, ratio
from workloads import WORKLOADS

# Where the peers keep what they compiled, and what they would find there from an earlier process.
CACHE_VARIABLES = (
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "HOSTJIT_CACHE_DIR",
    "JAX_COMPILATION_CACHE_DIR",
    "XDG_CACHE_HOME",
    "TMPDIR",
)

# Warm: an earlier process with the same model left what it keeps.
CACHE_STATES = ("cold", "warm")

# By peer and state of the caches.
Seconds = dict[str, dict[str, list[float]]]


def main() -> int:
    arguments = parse()
    seconds: Seconds = {name: {state: [] for state in CACHE_STATES} for name in arguments.peers}
    for _ in range(arguments.processes):
        for name in arguments.peers:
            if name not in seconds:
                continue
            results = spawn(name, arguments.workload, arguments.threads)
            if failures := [result["failure"] for result in results if "failure" in result]:
                print(f"without {name}: {failures[0]}", file=sys.stderr)
                del seconds[name]
                continue
            for state, result in zip(CACHE_STATES, results, strict=True):
                seconds[name][state].append(result["seconds"])
                print(f"{name}, {state} caches: {result['seconds']:.3f}", file=sys.stderr)
    print(table(arguments.workload, seconds, markdown=False))
    if arguments.json:
        content = {"machine": machine.facts(), "workload": arguments.workload, "seconds": seconds}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if len(seconds) == len(arguments.peers) else 1


def spawn(peer: str, workload: str, threads: int) -> list[dict[str, Any]]:
    """Run a child with empty caches, then one with what that left; return what they printed."""
    with tempfile.TemporaryDirectory(prefix="hostjit-first-call-") as folder:
        caches = {variable: f"{folder}/{variable.lower()}" for variable in CACHE_VARIABLES}
        for path in caches.values():
            Path(path).mkdir()
        environment = {**os.environ, **caches, "CACHEDB": f"{folder}/tinygrad.db"}
        return [run_child(peer, workload, threads, environment) for _ in CACHE_STATES]


def run_child(
    peer: str, workload: str, threads: int, environment: dict[str, str]
) -> dict[str, Any]:
    """Run one child and return what it printed."""
    script = Path(__file__).with_name("first_call_child.py")
    done = subprocess.run(
        [sys.executable, str(script), peer, workload, str(threads)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"failure": done.stderr.strip().splitlines()[-1] if done.stderr else "crashed"}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def table(workload: str, seconds: Seconds, markdown: bool) -> str:
    """Return the medians, and how many times as long each peer takes as hostjit."""
    lines = []
    for state in CACHE_STATES:
        times = {name: seconds[name][state] for name in seconds if seconds[name][state]}
        medians = {name: statistics.median(values) for name, values in times.items()}
        lines += [
            [
                workload,
                name,
                state,
                f"{value:.3f}",
                f"{min(times[name]):.3f}",
                str(len(times[name])),
                ratio(value, medians.get("hostjit")),
            ]
            for name, value in medians.items()
        ]
    header = ["workload", "peer", "caches", "median s", "min s", "processes", "/ hostjit"]
    return format_table(header, lines, markdown)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Seconds from `import torch` to the first result, with cold and warm caches."
    )
    parser.add_argument(
        "--peers", type=names_of(PEERS), default=["hostjit", "compile"], metavar="A,B"
    )
    parser.add_argument("--workload", default="policy_b1", choices=list(WORKLOADS))
    parser.add_argument("--processes", type=int, default=5, help="per peer")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all times here")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
