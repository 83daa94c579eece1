# SPDX-License-Identifier: Apache-2.0
"""Makes the tests' own helpers importable, those of the kernel tests included."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "kernels"))
