# SPDX-License-Identifier: Apache-2.0
"""What numbers of a GPU depend on, beside the code."""

import importlib.metadata
import shutil
import subprocess
from pathlib import Path
from typing import Any

import machine
import torch

_QUERY = "driver_version,clocks.max.sm,clocks.max.mem,power.limit,persistence_mode"
_PACKAGES = ("triton", "jax", "jaxlib", "llvmlite", "cuda-bindings", "transformers")


def why_none() -> str:
    """Return why there is no CUDA device, or nothing."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no CUDA device (is there a driver?)"
    return ""


def now() -> str:
    time: str = machine.facts()["time"]
    return time


def facts(commit: str = "") -> dict[str, Any]:
    """Return the machine, the GPU, the versions and the commit, ready for JSON."""
    found = {**machine.facts(), "commit": commit or _commit(), "packages": _packages()}
    if why_none():
        return found
    properties = torch.cuda.get_device_properties(0)
    return found | {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "cuda": torch.version.cuda,
        **_smi(),
    }


def _smi() -> dict[str, str]:
    if not (program := shutil.which("nvidia-smi")):
        return {}
    done = subprocess.run(
        [program, f"--query-gpu={_QUERY}", "--format=csv,noheader", "--id=0"],
        capture_output=True,
        text=True,
        check=False,
    )
    values = [value.strip() for value in done.stdout.strip().split(",")]
    names = _QUERY.split(",")
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else {}


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip() or "unknown"


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
