# SPDX-License-Identifier: Apache-2.0
"""Packages outside of the usual folders, as `pip install --target` leaves them, are installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGE = """
import functools

class Recipe:
    def __init__(self, factor):
        self.factor = factor

@functools.lru_cache
def recipe(factor):
    return Recipe(factor)

def scale(x, factor):
    return x * recipe(factor).factor
"""
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import torch, hostjit, recipes
fast = hostjit.compile(lambda x: recipes.scale(x, 3), fallback=False)
print(fast(torch.ones(2)).tolist())
"""


def test_results_that_an_installed_package_keeps(tmp_path: Path) -> None:
    (tmp_path / "recipes.py").write_text(PACKAGE)
    run = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    users = subprocess.run(run, capture_output=True, text=True, check=False)
    assert "kept result" in users.stderr  # of the user's own code
    (tmp_path / "recipes-1.0.dist-info").mkdir()
    installed = subprocess.run(run, capture_output=True, text=True, check=True)
    assert installed.stdout.strip() == "[3.0, 3.0]"
