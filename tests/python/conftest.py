# SPDX-License-Identifier: Apache-2.0
"""Gives the whole test run an object cache of its own, empty at its beginning.

Garbage collection comes less often, and leaves out what was imported until tests begin, and by a
first compilation, and what each file of tests leaves behind, modules and caches: to go through all
of it again and again takes a tenth of the time of the tests.

Tests of what is captured give the two runtimes the same Host IR: each function runs its first case
in both, every other one in one of them, by its name. `HOSTJIT_TEST_RUNTIMES=both` runs all in both.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
import zlib
from pathlib import Path

import pytest

# Before hostjit reads its environment; processes that tests start inherit it.
_directory = tempfile.mkdtemp(prefix="hostjit-test-cache-")
os.environ["HOSTJIT_CACHE_DIR"] = _directory
atexit.register(shutil.rmtree, _directory, ignore_errors=True)


_RUNTIMES = ("jit", "evaluator")
_OF_CAPTURING = {Path(__file__).parent / name for name in ("capture", "dynamic", "training")}
_OF_CAPTURING |= {Path(__file__).parent / name for name in ("backend", "recording")}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("HOSTJIT_TEST_RUNTIMES") == "both":
        return
    firsts: dict[str, str] = {}  # the first case of each function
    left_out = [item for item in items if _runs_in_the_other_runtime(item, firsts)]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


def _runs_in_the_other_runtime(item: pytest.Item, firsts: dict[str, str]) -> bool:
    parameters = getattr(item, "callspec", None)
    if parameters is None or not _OF_CAPTURING.intersection(item.path.parents):
        return False
    runtime = parameters.params.get("runtime", parameters.params.get("each_runtime"))
    if runtime not in _RUNTIMES:
        return False
    function, _, _ = item.nodeid.partition("[")
    case = "-".join(part for part in parameters.id.split("-") if part not in _RUNTIMES)
    if firsts.setdefault(function, case) == case:
        return False
    return runtime != _RUNTIMES[zlib.crc32(f"{function} {case}".encode()) % 2]


def pytest_collection_finish() -> None:
    import torch

    import hostjit

    hostjit.compile(torch.sin)(torch.ones(1, requires_grad=True)).backward()
    gc.set_threshold(20_000, 10, 50)
    _freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path != item.path:
        _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()
