# SPDX-License-Identifier: Apache-2.0
"""Imports and recordings leave the garbage collector as they found it."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

from hostjit.collection_pause import collection_paused


class Cycle:
    def __init__(self) -> None:
        self.me = self


def test_the_collector_is_off_inside_and_on_afterwards() -> None:
    # Not 0 in CPython 3.12; what is frozen elsewhere may die meanwhile.
    are_frozen = gc.get_freeze_count() > 0
    with collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError), collection_paused():
        raise ValueError
    assert gc.isenabled()
    assert (gc.get_freeze_count() > 0) == are_frozen


def test_cycles_made_inside_are_collected_later() -> None:
    with collection_paused():
        cycle = weakref.ref(Cycle())
    assert cycle() is not None
    gc.collect()
    assert cycle() is None


def test_what_lasts_is_in_the_oldest_generation() -> None:
    with collection_paused(lasting=True):
        cycle = Cycle()
    # Unless something is frozen, as in CPython 3.12 and in whole runs of the tests.
    is_old = any(found is cycle for found in gc.get_objects(generation=2))
    assert is_old == (not gc.get_freeze_count())


@pytest.mark.parametrize("lasting", [False, True])
def test_it_is_off_inside_where_objects_are_frozen_too(lasting: bool) -> None:
    gc.freeze()
    try:
        with collection_paused(lasting=lasting):
            assert not gc.isenabled()
        assert gc.isenabled() and gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_what_the_program_set_stays() -> None:
    gc.disable()
    try:
        with collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    code = """
import gc, torch
gc.freeze()
import hostjit
assert gc.isenabled() and gc.get_freeze_count() > 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)
