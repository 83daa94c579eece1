# SPDX-License-Identifier: Apache-2.0
"""Attributes of `threading.local`: each thread has its own, and no look at all else for them."""

from __future__ import annotations

import threading
from unittest import mock

import torch

import hostjit
from hostjit.compiling.revalidations import Revalidations

OF_THREADS = threading.local()


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * OF_THREADS.scale + 1


def test_each_thread_has_its_own() -> None:
    OF_THREADS.scale = 2.0
    fast = hostjit.compile(scaled)
    x = torch.ones(3)
    failed: list[float] = []

    def check(scale: float) -> None:
        OF_THREADS.scale = scale
        for _ in range(3):
            if not torch.equal(fast(x), scaled(x)):
                failed.append(scale)

    check(2.0)
    for scale in (3.0, 2.0, 5.0):
        thread = threading.Thread(target=check, args=(scale,))
        thread.start()
        thread.join()
        check(scale + 1)
    assert not failed


def test_calls_do_not_look_again_at_all_that_was_assumed() -> None:
    OF_THREADS.scale = 2.0
    fast = hostjit.compile(scaled)
    x = torch.ones(3)
    fast(x)
    with mock.patch.object(Revalidations, "_note", autospec=True) as look:
        for _ in range(10):
            assert torch.equal(fast(x), x * 2 + 1)
    assert look.call_count <= 1
