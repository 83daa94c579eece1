# SPDX-License-Identifier: Apache-2.0
"""Makes the tests' own helpers importable, and the benchmarks' measure of errors."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "bench" / "python")]
