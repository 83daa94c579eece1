# SPDX-License-Identifier: Apache-2.0
"""Recordings where NumPy, which PyTorch can do without, is not installed."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
sys.modules["numpy"] = None
import warnings
warnings.simplefilter("ignore")
import torch
import hostjit
double = hostjit.capture(lambda x: x * 2, fallback=False)
for value in range(4):
    assert double(torch.full((3,), float(value))).tolist() == [2.0 * value] * 3
"""


def test_a_recording() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=300)
