# SPDX-License-Identifier: Apache-2.0
"""What a measured number depends on, beside the code."""

import datetime
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

import torch


def facts() -> dict[str, Any]:
    """Return the machine, the versions and the command line, ready for JSON."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "simd": torch.backends.cpu.get_cpu_capability(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", *sys.argv]),
    }


def cpu_model() -> str:
    """Return the model name with family and model: virtual machines often hide the name."""
    wanted = {"model name": "", "cpu family": "", "model": ""}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in wanted and not wanted[key.strip()]:
            wanted[key.strip()] = value.strip()
    if not wanted["model name"]:
        return platform.processor() or platform.machine()
    return f"{wanted['model name']} (family {wanted['cpu family']}, model {wanted['model']})"


def pin(threads: int) -> None:
    """Use `threads` cores and as many threads; call it before a peer starts threads of its own."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[-threads:])
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
        os.environ[variable] = str(threads)
    torch.set_num_threads(threads)
