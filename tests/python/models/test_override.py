# SPDX-License-Identifier: Apache-2.0
"""Programs whose author wrote torch.compile(model), and nothing of hostjit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from entry_point import environment_with_entry_point
from small_models import MODELS

PROGRAM = Path(__file__).parent / "unmodified_program.py"


@pytest.mark.parametrize(
    ("task", "names"),
    [("forward", [*MODELS]), ("train", ["gpt2", "bert", "vit"]), ("generate", ["gpt2", "llama"])],
    ids=["forward", "train", "generate"],
)
def test_an_unmodified_program_runs_on_hostjit(task: str, names: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), task, *names],
        env={
            **environment_with_entry_point(tmp_path),
            "TORCH_COMPILE_OVERRIDE_BACKENDS": ">=0:hostjit",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["by hostjit: True", "by Inductor: False"]
