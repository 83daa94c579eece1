# SPDX-License-Identifier: Apache-2.0
"""Seconds from `import torch` to the first result, in new processes with cold caches.

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


def main() -> int:
    arguments = parse()
    seconds: dict[str, list[float]] = {name: [] for name in arguments.peers}
    for _ in range(arguments.processes):
        for name in arguments.peers:
            if name not in seconds:
                continue
            result = spawn(name, arguments.workload, arguments.threads)
            if "failure" in result:
                print(f"without {name}: {result['failure']}", file=sys.stderr)
                del seconds[name]
                continue
            seconds[name].append(result["seconds"])
            print(f"{name}: {result['seconds']:.3f}", file=sys.stderr)
    print(table(arguments.workload, seconds, markdown=False))
    if arguments.json:
        content = {"machine": machine.facts(), "workload": arguments.workload, "seconds": seconds}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if len(seconds) == len(arguments.peers) else 1


def spawn(peer: str, workload: str, threads: int) -> dict[str, Any]:
    """Run one child with empty caches and return what it printed."""
    with tempfile.TemporaryDirectory(prefix="hostjit-first-call-") as folder:
        caches = {variable: f"{folder}/{variable.lower()}" for variable in CACHE_VARIABLES}
        for path in caches.values():
            Path(path).mkdir()
        script = Path(__file__).with_name("first_call_child.py")
        done = subprocess.run(
            [sys.executable, str(script), peer, workload, str(threads)],
            env={**os.environ, **caches, "CACHEDB": f"{folder}/tinygrad.db"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        return {"failure": done.stderr.strip().splitlines()[-1] if done.stderr else "crashed"}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def table(workload: str, seconds: dict[str, list[float]], markdown: bool) -> str:
    """Return the medians, and how many times as long each peer takes as hostjit."""
    medians = {name: statistics.median(values) for name, values in seconds.items() if values}
    ours = medians.get("hostjit")
    lines = [
        [
            workload,
            name,
            f"{value:.3f}",
            f"{min(seconds[name]):.3f}",
            str(len(seconds[name])),
            ratio(value, ours),
        ]
        for name, value in medians.items()
    ]
    header = ["workload", "peer", "median s", "min s", "processes", "/ hostjit"]
    return format_table(header, lines, markdown)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Seconds from `import torch` to the first result, with cold caches."
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
