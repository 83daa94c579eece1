# SPDX-License-Identifier: Apache-2.0
"""What tinygrad's memory planner gives for the rows of test_tinyjit_planner.py, as of 0.14.0.

A test has the name of its row. They run where tinygrad and clang are.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest
from tinygrad_programs import random_of

tinygrad = pytest.importorskip("tinygrad")
uop = pytest.importorskip("tinygrad.uop.ops")
engine = pytest.importorskip("tinygrad.engine.jit")
memory_plan_rewrite = pytest.importorskip("tinygrad.schedule.memory").memory_plan_rewrite


class Place(NamedTuple):
    arena: Any
    offset: int
    size: int


class Plan(NamedTuple):
    places: dict[str, Place]  # of the buffers that were planned
    arenas: set[Any]
    lower_bound: int

    @property
    def total(self) -> int:
        return sum(arena.nbytes() for arena in self.arenas)


def plan(
    steps: list[str], sizes: dict[str, int] | None = None, *, held: str = "", copies: str = ""
) -> Plan:
    """Plan steps "a b", kernels that have these buffers; a step of `copies` is a copy of a to b."""
    names = sorted({name for step in steps for name in step.split()})
    sizes = sizes or {}
    buffers = {
        name: uop.UOp.new_buffer("CPU", sizes.get(name, 4096), tinygrad.dtypes.int8)
        for name in names
    }
    calls = []
    for step in steps:
        taken = [buffers[name] for name in step.split()]
        code = uop.UOp(uop.Ops.SINK, src=tuple(taken))
        if step in copies.split(", "):
            code = taken[0].copy_to_device("CPU:1")
            assert code.op is uop.Ops.COPY
        calls.append(uop.UOp(uop.Ops.CALL, src=(code, *taken)))
    linear = uop.UOp(uop.Ops.LINEAR, src=tuple(calls))
    kept = {buffers[name] for name in held.split()}
    return read(linear, memory_plan_rewrite(linear, kept), kept, buffers)


def read(linear: Any, planned: Any, held: set[Any], buffers: dict[str, Any]) -> Plan:
    """Where buffers were placed; no two in use at one time share a byte."""
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    found: dict[Any, Place] = {}
    for step, (call, new) in enumerate(zip(linear.src, planned.src, strict=True)):
        for buffer, view in zip(call.src[1:], new.src[1:], strict=True):
            if buffer.op is not uop.Ops.BUFFER or buffer in held:
                continue
            first.setdefault(buffer, step)
            last[buffer] = step
            where = view.src[0] if view.op is uop.Ops.BITCAST else view
            is_whole = where.op is uop.Ops.BUFFER
            assert where is not buffer and (is_whole or where.op is uop.Ops.SHRINK)
            arena, offset = (where, 0) if is_whole else (where.src[0], where.src[1].val)
            found[buffer] = Place(arena, offset, buffer.nbytes())
    for one, a in found.items():
        for other, b in found.items():
            if one is not other and a.arena is b.arena:
                lives_apart = last[one] < first[other] or last[other] < first[one]
                lies_apart = a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
                assert lives_apart or lies_apart
    in_use = [
        sum(buffer.nbytes() for buffer in found if first[buffer] <= step <= last[buffer])
        for step in range(len(linear.src))
    ]
    by_name = {name: found[buffer] for name, buffer in buffers.items() if buffer in found}
    return Plan(by_name, {place.arena for place in found.values()}, max(in_use, default=0))


CHAIN = ["a b", "b c", "c d", "d e", "e f"]


def test_simple_buffer() -> None:
    found = plan(CHAIN)
    assert found.total == found.lower_bound == 2 * 4096
    assert found.places["a"].offset == found.places["c"].offset


def test_simple_pinned() -> None:
    found = plan(CHAIN, held="a c")
    assert set(found.places) == {"b", "d", "e", "f"}


def test_all_pinned() -> None:
    found = plan(["a b"], held="a b")
    assert not found.places and not found.arenas


# The planner sees of a view the buffer that it is of, so the steps name that.


def test_simple_buffer_offset() -> None:
    found = plan(["a b", "b c", "c d", "a d"])
    assert found.places["a"].offset not in {found.places[name].offset for name in "bcd"}


def test_buffer_offset() -> None:
    found = plan(["a x", "a x", "a b"])
    assert set(found.places) == {"a", "b", "x"}
    assert found.places["a"].offset != found.places["b"].offset


def test_buffer_offset2() -> None:
    apart, again = plan(["x a", "x b"]), plan(["x a", "x b", "a b"])
    assert apart.places["a"].offset == apart.places["b"].offset
    assert again.places["a"].offset != again.places["b"].offset


def test_all_offsets_of_one() -> None:
    assert set(plan(["x a"] * 4).places) == {"a", "x"}


def test_very_small_buffers() -> None:
    found = plan(["a b", "b c"], dict.fromkeys("abc", 1))
    assert {place.offset for place in found.places.values()} == {0, 256}
    assert found.total == 2 * 256


def test_very_big_buffers() -> None:
    assert plan(["a b"], {"a": 1 << 128, "b": 1 << 64}).total == (1 << 128) + (1 << 64)


def test_buffers_of_many_sizes() -> None:
    sizes = [2048, 16384, 64, 8192, 8192, 256, 16384, 32]
    names = "abcdefgh"
    steps = [f"{one} {other}" for one, other in itertools.pairwise(names)]
    found = plan(steps, dict(zip(names, sizes, strict=True)))
    assert found.total < sum(sizes)
    assert found.places["d"].offset < sizes[1]  # in what was b


def test_plans_of_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = []

    def note(linear: Any, held: set[Any] | None = None) -> Any:
        planned = memory_plan_rewrite(linear, held)
        found = read(linear, planned, held or set(), {})
        ratios.append(found.total / found.lower_bound)
        return planned

    monkeypatch.setattr(engine, "memory_plan_rewrite", note)
    for function in (
        lambda x: ((x @ x).relu().contiguous() @ x).tanh().contiguous() @ x,
        lambda x: (
            (x @ x).contiguous().cat((x.exp().contiguous() @ x).contiguous()).contiguous() @ x
        ),
        lambda x: (x @ x).softmax(-1).contiguous() @ (x + 1).T.contiguous() @ x,
    ):
        jit = tinygrad.TinyJit(function)
        for _ in range(3):
            jit(random_of(48, 48))
    assert len(ratios) == 3 and 1.1 < max(ratios) <= 1.25


def test_copy_bufs_separate_from_compute() -> None:
    found = plan(["a b", "b c", "d c"], copies="a b")
    assert found.places["b"].arena is not found.places["c"].arena


def test_copy_bufs_reuse_among_copies() -> None:
    found = plan(["a b", "b c", "c d"], copies="a b, b c, c d")
    assert len(found.arenas) == 1


def test_compute_bufs_reuse_among_compute() -> None:
    found = plan(["a b", *CHAIN[1:]], copies="a b")
    assert found.places["c"].arena is found.places["d"].arena
    assert found.places["c"].offset == found.places["e"].offset


def test_copy_and_compute_no_cross_reuse() -> None:
    found = plan(["a b", "b c", "c d", "d e"], copies="c d")
    copied = {found.places[name].arena for name in "cd"}
    assert copied.isdisjoint({found.places[name].arena for name in "abe"})


def test_multiple_copy_bufs_with_offsets() -> None:
    found = plan(["a b", "b c", "c d", "a d"], copies="a b, b c, c d, a d")
    assert found.places["a"].offset not in {found.places[name].offset for name in "bcd"}


def test_copy_bufs_pinned_mixed() -> None:
    found = plan(["a b", "b c", "c d"], held="b", copies="a b")
    assert "b" not in found.places


def test_deferred_copy_frees_chain() -> None:
    copied = plan(["a b", "b c", "c d", "d e"], copies="a b, b c, c d, d e")
    computed = plan(["a b", "b c", "c d", "d e"])
    assert copied.total > computed.total == 2 * 4096
