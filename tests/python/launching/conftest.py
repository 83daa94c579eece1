# SPDX-License-Identifier: Apache-2.0
"""Recordings are compared as the tests of recordings do it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "recording"))
