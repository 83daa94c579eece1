# SPDX-License-Identifier: Apache-2.0
"""Gives the whole test run an object cache of its own, empty at its beginning.

Garbage collection comes less often, and leaves out what was imported until tests begin, and by a
first compilation, and what each file of tests leaves behind, modules and caches: to go through all
of it again and again takes a tenth of the time of the tests.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile

import pytest
from case_selection import cases_left_out

# Before hostjit reads its environment; processes that tests start inherit it.
_directory = tempfile.mkdtemp(prefix="hostjit-test-cache-")
os.environ["HOSTJIT_CACHE_DIR"] = _directory
atexit.register(shutil.rmtree, _directory, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = cases_left_out(items)
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


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
