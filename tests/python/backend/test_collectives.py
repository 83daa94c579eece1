# SPDX-License-Identifier: Apache-2.0
"""Functional collectives in groups of processes on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed

PROGRAM = Path(__file__).parent / "collectives.py"


@pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="PyTorch is built without gloo",
)
@pytest.mark.parametrize("size", [1, 2])
def test_collectives_are_those_of_eager_mode(size: int, tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(tmp_path / "meet"), str(rank), str(size)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        said = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * size, "\n".join(said)
