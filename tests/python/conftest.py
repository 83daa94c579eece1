# SPDX-License-Identifier: Apache-2.0
"""Gives the whole test run an object cache of its own, empty at its beginning."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

# Before hostjit reads its environment; processes that tests start inherit it.
_directory = tempfile.mkdtemp(prefix="hostjit-test-cache-")
os.environ["HOSTJIT_CACHE_DIR"] = _directory
atexit.register(shutil.rmtree, _directory, ignore_errors=True)
