# SPDX-License-Identifier: Apache-2.0
"""Makes these tests' helpers importable, those of lowering's and the benchmarks' launcher too."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parents[1] / "lowering"),
    str(HERE.parents[3] / "bench" / "gpu"),
]
