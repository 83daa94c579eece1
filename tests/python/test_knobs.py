# SPDX-License-Identifier: Apache-2.0
"""Knobs from Python and from the environment, dumps, and the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hostjit


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


PROGRAM = """
import torch, hostjit
with torch.no_grad():
    fast = hostjit.compile(lambda x: torch.tanh(x) * 2 + x)
    fast(torch.ones(8)); fast(torch.ones(8))
"""


def test_dumps_go_to_numbered_files(tmp_path: Path) -> None:
    every = "capture,host_ir,host_ir_passes,kernels,llvm_ir,asm"
    result = run(PROGRAM, HOSTJIT_DUMP=every, HOSTJIT_DUMP_DIR=str(tmp_path))
    assert result.returncode == 0, result.stderr
    names = sorted(path.name for path in tmp_path.iterdir())
    assert all(re.match(r"\d+_", name) for name in names)
    for part in ("captured", "plan_memory", "host_ir", ".ll", ".s"):
        assert any(part in name for name in names), (part, names)
    with_text = [path for path in tmp_path.iterdir() if path.suffix == ".hir"]
    assert all(
        "program @" in path.read_text() or "unchanged" in path.read_text() for path in with_text
    )


def test_dumps_go_to_stderr_without_a_directory() -> None:
    result = run(PROGRAM, HOSTJIT_DUMP="host_ir")
    assert "program @" in result.stderr


def test_each_kernel_comes_with_its_assembly(tmp_path: Path) -> None:
    code = """
import torch, hostjit
with torch.no_grad():
    fast = hostjit.compile(lambda x, w: torch.tanh(x @ w) * 2 + x)
    fast(torch.ones(8, 8), torch.ones(8, 8))
"""
    result = run(code, HOSTJIT_DUMP="kernels", HOSTJIT_DUMP_DIR=str(tmp_path))
    assert result.returncode == 0, result.stderr
    texts = {path.name.split("_", 1)[1]: path.read_text() for path in tmp_path.iterdir()}
    for part in ("kernel_", "product."):
        (ir,) = (text for name, text in texts.items() if part in name and name.endswith(".ll"))
        (asm,) = (text for name, text in texts.items() if part in name and name.endswith(".s"))
        assert "define" in ir
        assert "ret" in asm
        assert asm.count(".globl") == 1


def test_a_product_that_threads_share_is_dumped_with_what_it_calls(tmp_path: Path) -> None:
    code = """
import torch, hostjit
with torch.no_grad():
    fast = hostjit.compile(lambda x: x @ x)
    fast(torch.ones(300, 300))
"""
    result = run(code, HOSTJIT_DUMP="kernels", HOSTJIT_DUMP_DIR=str(tmp_path))
    assert result.returncode == 0, result.stderr
    (asm,) = (path.read_text() for path in tmp_path.iterdir() if path.name.endswith(".s"))
    assert ".blocks" in asm
    assert "vfmadd" in asm or "fmla" in asm or "mul" in asm


def test_the_environment_picks_the_runtime() -> None:
    rows = "{row['name']: row['current'] for row in hostjit._C.knob_rows()}"
    code = PROGRAM + f"\nprint({rows}['host_ir_jit'])"
    assert "off" in run(code, HOSTJIT_DISABLE="host_ir_jit").stdout
    assert "on" in run(code, HOSTJIT_ENABLE=" host_ir_jit ").stdout


def test_an_unknown_name_lists_the_valid_ones() -> None:
    result = run(PROGRAM, HOSTJIT_DUMP="host_irr")
    assert result.returncode != 0
    assert "host_irr" in result.stderr and "llvm_ir" in result.stderr


def test_profiler_ranges() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ x).cumsum(0)

    with torch.no_grad(), hostjit.knobs(enable="profile_ranges"):
        fast = hostjit.compile(model)
        fast(torch.ones(4, 4))
    assert "range_push" in fast.host_ir()
    for runtime in ("jit", "evaluator"):
        with torch.no_grad(), hostjit.runtime(runtime), torch.profiler.profile() as profile:
            fast(torch.ones(4, 4))
        names = {event.key for event in profile.key_averages()}
        assert any("tanh" in name for name in names), names


def test_the_command_line_lists_knobs() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "hostjit", "knobs"], capture_output=True, text=True, check=True
    )
    assert "host_ir_jit" in result.stdout and "HOSTJIT_DUMP" in result.stdout


def test_nothing_to_tell_before_the_first_call() -> None:
    with pytest.raises(hostjit.Error, match="call the function once"):
        hostjit.compile(torch.tanh).host_ir()
