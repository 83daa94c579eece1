# SPDX-License-Identifier: Apache-2.0
"""Bandwidth of generated CUDA kernels on large tensors, as a fraction of a copy's.

python bench/gpu/kernels.py [--json FILE] [--only NAME] [--rounds 50] [--set rows._MOST_KEPT=32]

Needs a GPU, its driver and NVRTC, and of hostjit only the package of kernels. Each number is the
median of the rounds; a round is some launches between two CUDA events, on buffers that take turns
and are together larger than the second-level cache. Results are checked against eager's first;
`--set` tries another constant of hostjit.kernels.cuda.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cuda_launch import LaunchedSteps
from gpu_kernel_cases import TORCH, Case, cases

LAUNCHES = 10
# Together, the sets of buffers of a case are at least this large: four times the H200's cache.
ROTATING_BYTES = 200 << 20


def milliseconds(calls: list[Callable[[], Any]], rounds: int) -> float:
    """Median time of one call on the device; the calls take turns."""
    for call in calls:
        call()
    times = []
    turn = 0
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(400_000)  # the queue fills meanwhile
        start.record()
        for _ in range(LAUNCHES):
            calls[turn % len(calls)]()
            turn += 1
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / LAUNCHES)
    return statistics.median(times)


def copy_bandwidth(count: int, rounds: int) -> float:
    """Bytes per second, read and written, of copies that move `count` bytes in all."""
    sets = -(-ROTATING_BYTES // count) + 1
    pairs = [
        (
            torch.empty(count // 2, dtype=torch.uint8, device="cuda"),
            torch.empty(count // 2, dtype=torch.uint8, device="cuda"),
        )
        for _ in range(sets)
    ]
    calls = [lambda pair=pair: pair[1].copy_(pair[0]) for pair in pairs]
    return count / milliseconds(calls, rounds) * 1e3


def measure(case: Case, rounds: int, peak: float) -> dict[str, Any]:
    launched = LaunchedSteps(case.kernel)
    dtype = TORCH[case.dtype]
    sets = []
    for _ in range(-(-ROTATING_BYTES // case.bytes) + 1):
        inputs = [torch.randn(shape, device="cuda").to(dtype) for shape in case.inputs]
        sets.append((inputs, torch.empty(case.output, dtype=dtype, device="cuda")))
    inputs, output = sets[0]
    launched(*inputs, output)
    expected = case.eager(*inputs)
    torch.testing.assert_close(
        output, expected, rtol=2e-2 if dtype is torch.bfloat16 else 2e-4, atol=2e-2
    )
    time = milliseconds([launched.prepare(*tensors, out) for tensors, out in sets], rounds)
    eager = milliseconds([lambda t=tensors: case.eager(*t) for tensors, _ in sets], rounds)
    copy = copy_bandwidth(case.bytes, rounds)
    speed = case.bytes / time * 1e3
    return {
        "kernel": case.name,
        "dtype": case.dtype.value,
        "shape": list(case.inputs[0]),
        "grids": [one.kernel.grid[0] for one in launched.kernels],
        "blocks": [one.kernel.block[0] for one in launched.kernels],
        "microseconds": round(time * 1e3, 2),
        "eager_microseconds": round(eager * 1e3, 2),
        "terabytes_per_second": round(speed / 1e12, 3),
        "of_copy_of_this_size": round(speed / copy, 3),
        "of_largest_copy": round(speed / peak, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--set", action="append", default=[], metavar="rows._MOST_KEPT=32")
    options = parser.parse_args()
    for setting in options.set:
        name, _, number = setting.partition("=")
        module, _, constant = name.rpartition(".")
        found = importlib.import_module(f"hostjit.kernels.cuda.{module}")
        assert hasattr(found, constant), name
        setattr(found, constant, int(number))
    if not torch.cuda.is_available():
        parser.exit(2, "kernels.py: there is no GPU to measure\n")
    peak = copy_bandwidth(1 << 30, options.rounds)
    print(f"{torch.cuda.get_device_name()}: a copy of 512 MiB moves {peak / 1e12:.3f} TB/s")
    rows = []
    for case in cases():
        if options.only not in case.name:
            continue
        try:
            row = measure(case, options.rounds, peak)
        except Exception as error:
            row = {"kernel": case.name, "dtype": case.dtype.value, "failed": repr(error)[:300]}
        rows.append(row)
        print("  ".join(str(field) for field in row.values()), flush=True)
        torch.cuda.empty_cache()
    if options.json:
        facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "copy": peak}
        options.json.write_text(json.dumps({**facts, "kernels": rows}, indent=1))


if __name__ == "__main__":
    main()
