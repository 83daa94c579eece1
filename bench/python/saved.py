# SPDX-License-Identifier: Apache-2.0
"""Milliseconds to the first result in new processes: of a saved file, and of hostjit.compile.

A process imports torch and hostjit, which is told apart, and makes the input. Then the clock
starts: hostjit.load and the first call; or hostjit.compile and the first call, with a warm object
cache, of a model that has been made. There, what hostjit.compile imports counts as imports too.
Python finds its compiled modules, as it does of an installed package.

    python bench/python/saved.py
    python bench/python/saved.py --models policy_b1 --processes 11 --json saved.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine
from report import format_table

WAYS = ("load", "compile")
# What a child prints, in milliseconds.
STEPS = ("import torch", "import hostjit", "until the first result", "first call", "CPU time")
# In a process that imports no benchmark before the clock.
CHILD = """
import time
begin = time.perf_counter()
import torch
middle = time.perf_counter()
import hostjit
import sys
if sys.argv[3] != "load":
    from hostjit.dynamo_import import import_compiler
    import_compiler()
end = time.perf_counter()
sys.path.insert(0, sys.argv[1])
import saved
saved.child(*sys.argv[2:], imports=(middle - begin, end - middle))
"""


def models() -> dict[str, Any]:
    """Return what makes a model and an input, by name."""
    import torch
    from any_shape import Block
    from torch import nn

    def policy() -> nn.Module:
        from workloads import WORKLOADS

        return WORKLOADS["policy_b1"].module()

    return {
        "policy_b1": (policy, lambda: torch.randn(1, 32)),
        "block256_b1": (lambda: Block(256, 4).eval(), lambda: torch.randn(1, 16, 256)),
        "block768_b1": (lambda: Block(768, 12).eval(), lambda: torch.randn(1, 16, 768)),
    }


def child(name: str, way: str, path: str, *, imports: Sequence[float]) -> None:
    """Print what the steps of one process took."""
    import torch

    import hostjit

    torch.set_num_threads(1)
    torch.manual_seed(0)
    make_model, make_input = models()[name]
    with torch.no_grad():
        model, x = make_model(), make_input()
        if way == "save":
            fast = hostjit.compile(model)
            fast(x)
            hostjit.save(fast, path)
            return
        cpu, begin = time.process_time(), time.perf_counter()
        fast = hostjit.load(path) if way == "load" else hostjit.compile(model)
        middle = time.perf_counter()
        result = fast(x)
        end, cpu = time.perf_counter(), time.process_time() - cpu
        torch.testing.assert_close(result, model(x))
    llvm = fast.timings()["optimize"]
    if llvm:
        raise SystemExit(f"LLVM optimised for {llvm} ms: nothing was cached")
    seconds = (*imports, end - begin, end - middle, cpu)
    print(json.dumps([1e3 * value for value in seconds]))


def run(name: str, way: str, path: Path, environment: dict[str, str]) -> list[float]:
    """Run a child, and return what it printed."""
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), name, way, str(path)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout) if way != "save" else []


def main() -> None:
    arguments = parse()
    times: dict[str, dict[str, list[list[float]]]] = {}
    sizes: dict[str, int] = {}
    for name in arguments.models:
        with tempfile.TemporaryDirectory(prefix="hostjit-saved-") as folder:
            path = Path(folder) / "saved.hostjit"
            environment = {**os.environ, "HOSTJIT_CACHE_DIR": folder}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            for way in ("save", "load"):  # fill the caches
                run(name, way, path, environment)
            sizes[name] = path.stat().st_size
            times[name] = {way: [] for way in WAYS}
            for _ in range(arguments.processes):
                for way in WAYS:
                    times[name][way].append(run(name, way, path, environment))
    lines = [
        [name, way, f"{sizes[name] / 1e6:.2f}"]
        + [f"{statistics.median(step):.2f}" for step in zip(*times[name][way], strict=True)]
        for name in times
        for way in WAYS
    ]
    print(format_table(["model", "way", "MB", *STEPS], lines, markdown=False))
    if arguments.json:
        content = {"machine": machine.facts(), "steps": STEPS, "bytes": sizes, "times": times}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")


def parse() -> argparse.Namespace:
    names = ["policy_b1", "block256_b1", "block768_b1"]
    parser = argparse.ArgumentParser(
        description="Milliseconds to the first result of a saved file and of hostjit.compile."
    )
    parser.add_argument("--models", nargs="+", default=names, choices=names)
    parser.add_argument("--processes", type=int, default=5, help="per model and way")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all times here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
