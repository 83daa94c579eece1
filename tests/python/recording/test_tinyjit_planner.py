# SPDX-License-Identifier: Apache-2.0
"""The cases of tinygrad's memory planner, as programs: where hostjit puts their buffers.

Each docstring has the form "tinygrad: ...; hostjit: ..." from which a table is made.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch

import hostjit
from hostjit import _C


class Buffer(NamedTuple):
    size: int
    offset: int | None  # None: memory of its own
    first: int
    last: int


class Plan(NamedTuple):
    """What a program takes of the CPU's arena, and of that of its GPU."""

    buffers: dict[str, Buffer]
    devices: dict[str, str]
    arena: int
    lower_bound: int
    unshared: int
    gpu_arena: int
    gpu_lower_bound: int


def plan_of(program: str) -> Plan:
    """Compile Host IR and read its plan; no two buffers in use at one time share a byte."""
    text = _C.CompiledProgram(_C.parse(program)).memory_plan()
    rows = re.findall(
        r"^(%\S+) +tensor<.*?([\w:]+)> +(\d+) +(\d+|[a-z][a-z ]*?) +(\d+)\.\.(\d+)", text, re.M
    )
    buffers = {
        name: Buffer(int(size), int(at) if at.isdigit() else None, int(first), int(last))
        for name, _, size, at, first, last in rows
    }
    devices = {name: device for name, device, *_ in rows}
    totals = re.search(
        r"arena (\d+) bytes, lower bound (\d+) bytes.*without sharing (\d+) bytes", text
    )
    assert totals is not None, text
    of_gpu = re.search(r"arena of cuda:0 (\d+) bytes, lower bound (\d+) bytes", text)
    for (name, a), (other, b) in itertools.combinations(buffers.items(), 2):
        if a.offset is not None and b.offset is not None and devices[name] == devices[other]:
            lives_apart = a.last <= b.first or b.last <= a.first
            lies_apart = a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
            assert lives_apart or lies_apart, text
    on_gpu = map(int, of_gpu.groups() if of_gpu else (0, 0))
    return Plan(buffers, devices, *map(int, totals.groups()), *on_gpu)


def chain(sizes: list[int], dtype: str = "f32") -> str:
    """A program in which each buffer is computed of the one before it."""
    lines = [f"program @chain(%x: tensor<{dtype}, [{sizes[0]}], cpu>) {{"]
    source = "%x"
    for number, size in enumerate(sizes):
        lines += [
            f"  %b{number} = allocate() : tensor<{dtype}, [{size}], cpu>",
            f"  fill(out=%b{number}, value={number}.0)",
            f"  %s{number} = view(source=%b{number}) : tensor<{dtype}, [1], cpu>",
            f"  %t{number} = view(source={source}) : tensor<{dtype}, [1], cpu>",
            f"  copy(source=%t{number}, out=%s{number})",
        ]
        source = f"%b{number}"
    lines += [f"  return {source}", "}"]
    return "\n".join(lines)


_NEXT = '''
kernel @next ptx(entry="next", parameters=[ptr, ptr]) """
.version 7.0
.target sm_80
.address_size 64
.visible .entry next(.param .u64 from, .param .u64 to) { ret; }
"""
'''


def on_devices(steps: list[str], results: str) -> str:
    """A program of steps "a b", which compute %b of %a: names begin with their device.

    That is g, cuda:0; G, cuda:1; or h, the CPU. A step from one device to another is a copy, and
    one on a second GPU an operator, as they are lowered.
    """
    devices = {"g": "cuda:0", "G": "cuda:1", "h": "cpu"}

    def type_of(name: str) -> str:
        return f"tensor<f32, [1024], {devices[name[0]]}>"

    lines = [f"program @p(%g: {type_of('g')}, %G: {type_of('G')}, %h: {type_of('h')}) {{"]
    for step in steps:
        source, out = step.split()
        if source[0] != out[0]:
            to = f"none, none, device({devices[out[0]]}), none, false, none"
            call = f'aten_call(target="aten::_to_copy", inputs=[%{source}], arguments=[$0, {to}])'
            lines.append(f"  %{out} = {call} : {type_of(out)}")
            continue
        if out[0] == "G":
            call = f'aten_call(target="aten::neg", inputs=[%{source}], arguments=[$0])'
            lines.append(f"  %{out} = {call} : {type_of(out)}")
            continue
        lines.append(f"  %{out} = allocate() : {type_of(out)}")
        if out[0] == "h":
            lines.append(f"  copy(source=%{source}, out=%{out})")
        else:
            launch = f'kernel="next", inputs=[%{source}], outputs=[%{out}], grid=[1, 1, 1]'
            lines.append(f"  launch_kernel({launch}, block=[32, 1, 1])")
    return "\n".join([*lines, f"  return {results}", "}", _NEXT])


def test_simple_buffer() -> None:
    """tinygrad: buffers whose lives don't overlap share memory; hostjit: the same."""
    plan = plan_of(chain([1024] * 9))
    assert plan.arena == plan.lower_bound == 2 * 4096
    assert plan.unshared == 8 * 4096


def test_simple_pinned() -> None:
    """tinygrad: a buffer that the caller holds is not planned; hostjit: so it is with results."""
    plan = plan_of(chain([1024] * 4))
    assert plan.buffers["%b3"].offset is None
    assert all(plan.buffers[f"%b{number}"].offset is not None for number in range(3))


def test_all_pinned() -> None:
    """tinygrad: nothing to plan, nothing planned; hostjit: the arena is empty."""
    plan = plan_of(chain([1024]))
    assert plan.arena == plan.lower_bound == 0


def test_simple_buffer_offset() -> None:
    """tinygrad: a view keeps its base alive; hostjit: the same."""
    plan = plan_of(
        """
        program @p(%x: tensor<f32, [16], cpu>) {
          %a = allocate() : tensor<f32, [1024], cpu>
          fill(out=%a, value=1.0)
          %v = view(source=%a, offset=512) : tensor<f32, [16], cpu>
          %b = allocate() : tensor<f32, [1024], cpu>
          fill(out=%b, value=2.0)
          %w = view(source=%b) : tensor<f32, [16], cpu>
          copy(source=%v, out=%w)
          %r = allocate() : tensor<f32, [16], cpu>
          copy(source=%w, out=%r)
          return %r
        }
        """
    )
    assert plan.arena == plan.lower_bound == 2 * 4096


def _of_views(bases: int, views: list[tuple[int, int]]) -> str:
    """A program that copies views (base, offset) of buffers of 1024, each into the next."""
    lines = ["program @p(%x: tensor<f32, [16], cpu>) {"]
    for base in range(bases):
        lines += [f"  %b{base} = allocate() : tensor<f32, [1024], cpu>"]
        lines += [f"  fill(out=%b{base}, value=1.0)"]
    for number, (base, offset) in enumerate(views):
        source = f"v{number - 1}" if number else "x"
        lines += [
            f"  %v{number} = view(source=%b{base}, offset={offset}) : tensor<f32, [16], cpu>",
            f"  copy(source=%{source}, out=%v{number})",
        ]
    last = f"%v{len(views) - 1}"
    lines += ["  %r = allocate() : tensor<f32, [16], cpu>", f"  copy(source={last}, out=%r)"]
    return "\n".join([*lines, "  return %r", "}"])


def test_buffer_offset() -> None:
    """tinygrad: views of a buffer at two offsets are one life; hostjit: the same."""
    plan = plan_of(_of_views(2, [(0, 0), (0, 64), (1, 0)]))
    assert set(plan.buffers) == {"%b0", "%b1", "%r"}
    assert plan.arena == plan.lower_bound == 2 * 4096


def test_buffer_offset2() -> None:
    """tinygrad: a later view makes the life of its base longer; hostjit: the same."""
    plan = plan_of(_of_views(2, [(0, 0), (1, 0), (0, 64), (1, 64)]))
    assert plan.buffers["%b0"].last >= plan.buffers["%b1"].first
    assert plan.buffers["%b0"].offset != plan.buffers["%b1"].offset
    assert plan.arena == plan.lower_bound == 2 * 4096


def test_all_offsets_of_one() -> None:
    """tinygrad: views of one buffer are one buffer; hostjit: the same."""
    views = "".join(
        f"""
          %v{number} = view(source=%a, offset={16 * number}) : tensor<f32, [16], cpu>
          copy(source=%x, out=%v{number})"""
        for number in range(4)
    )
    plan = plan_of(
        f"""
        program @p(%x: tensor<f32, [16], cpu>) {{
          %a = allocate() : tensor<f32, [64], cpu>{views}
          %r = allocate() : tensor<f32, [64], cpu>
          copy(source=%a, out=%r)
          return %r
        }}
        """
    )
    assert plan.arena == plan.lower_bound == 256
    assert set(plan.buffers) == {"%a", "%r"}


def test_very_small_buffers() -> None:
    """tinygrad: buffers of a byte take blocks of 256; hostjit: lines of 64."""
    plan = plan_of(chain([1] * 9))
    assert plan.arena <= 2 * 64


def test_very_big_buffers() -> None:
    """tinygrad: plans 2**128 bytes; hostjit: sizes whose bytes fit into 63 bits, else an error."""
    plan = plan_of(chain([1 << 50] * 5))
    assert plan.arena == plan.lower_bound == 2 << 52
    with pytest.raises(hostjit.Error):
        plan_of(chain([1 << 62] * 5))


def test_buffers_of_many_sizes() -> None:
    """tinygrad: a block that is free is used for smaller ones; hostjit: the same."""
    plan = plan_of(chain([512, 4096, 16, 2048, 2048, 64, 4096, 8]))
    assert plan.lower_bound <= plan.arena <= 1.1 * plan.lower_bound
    assert plan.arena < plan.unshared


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ((x @ x).relu() @ x).tanh() @ x,
        lambda x: torch.cat([x @ x, x.exp() @ x]) @ x,
        lambda x: (x @ x).softmax(-1) @ (x + 1).t() @ x,
    ],
)
@torch.no_grad()
def test_plans_of_recordings(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """tinygrad: up to a quarter above the lower bound; hostjit: within a tenth."""
    fast = hostjit.capture(function)
    for _ in range(3):
        fast(torch.randn(48, 48))
    found = re.search(r"arena (\d+) bytes, lower bound (\d+) bytes", fast.memory_plan())
    assert found is not None and int(found[1]) <= 1.1 * int(found[2])


def test_copy_bufs_separate_from_compute() -> None:
    """tinygrad: what is copied has an arena of its own; hostjit: what a copy makes is in none."""
    plan = plan_of(on_devices(["g g1", "g1 h1", "h1 h2", "h2 h3", "h3 g2", "g2 g3"], "%g3"))
    assert set(plan.buffers) == {"%g1", "%h2", "%h3", "%g3"}
    assert plan.devices == {"%g1": "cuda:0", "%h2": "cpu", "%h3": "cpu", "%g3": "cuda:0"}
    assert plan.buffers["%g1"].offset == plan.buffers["%h2"].offset == 0
    assert (plan.arena, plan.gpu_arena) == (2 * 4096, 4096)


def test_copy_bufs_reuse_among_copies() -> None:
    """tinygrad: copies share memory among themselves; hostjit: each is freed at its last use."""
    program = on_devices(["h g1", "g1 h1", "h1 g2", "g2 h2", "h2 h3"], "%h3")
    text = _C.CompiledProgram(_C.parse(program)).host_ir()
    for name, following in (("g1", "g2"), ("h1", "h2"), ("g2", "h3")):
        assert text.index(f"deallocate(buffer=%{name})") < text.index(f"%{following} = ")


def test_compute_bufs_reuse_among_compute() -> None:
    """tinygrad: so do kernels; hostjit: on each device at its lower bound."""
    steps = [f"g{number} g{number + 1}" for number in range(1, 8)]
    steps += [f"h{number} h{number + 1}" for number in range(1, 8)]
    plan = plan_of(on_devices(["g g1", "h h1", *steps], "%g8, %h8"))
    assert plan.arena == plan.lower_bound == 2 * 4096
    assert plan.gpu_arena == plan.gpu_lower_bound == 2 * 4096


def test_copy_and_compute_no_cross_reuse() -> None:
    """tinygrad: a copy never gets memory of a kernel; hostjit: nor that of another device."""
    steps = ["g g1", "g1 g2", "g2 h1", "h1 h2", "h2 h3", "h3 G1", "G1 G2", "G2 G3"]
    plan = plan_of(on_devices(steps, "%G3"))
    assert {plan.devices[name] for name in ("%g1", "%g2")} == {"cuda:0"}
    assert plan.gpu_arena == plan.gpu_lower_bound == 2 * 4096
    assert plan.arena == plan.lower_bound == 2 * 4096
    assert set(plan.buffers) == {"%g1", "%g2", "%h2", "%h3"}  # a second GPU has its allocator


def test_multiple_copy_bufs_with_offsets() -> None:
    """tinygrad: views of what was copied keep it alive; hostjit: the same."""
    program = on_devices(["g h1", "h1 h2", "h2 h3"], "%w")
    views = """
  %v = view(source=%h1, offset=512) : tensor<f32, [16], cpu>
  %w = allocate() : tensor<f32, [16], cpu>
  copy(source=%v, out=%w)
  return %w"""
    text = _C.CompiledProgram(_C.parse(program.replace("\n  return %w", views))).host_ir()
    assert text.index("copy(source=%v") < text.index("deallocate(buffer=%h1)")


def test_copy_bufs_pinned_mixed() -> None:
    """tinygrad: copies that the caller holds are not planned; hostjit: nor are they freed."""
    program = on_devices(["g g1", "g1 h1", "h1 g2", "g2 g3", "g3 h2", "h2 h3"], "%h1, %g3, %h3")
    plan = plan_of(program)
    assert plan.buffers["%g1"].offset == 0
    assert plan.buffers["%g3"].offset is plan.buffers["%h3"].offset is None
    text = _C.CompiledProgram(_C.parse(program)).host_ir()
    freed = set(re.findall(r"deallocate\(buffer=%(\w+)\)", text))
    assert freed == {"g1", "g2", "h2"}


def test_deferred_copy_frees_chain() -> None:
    """tinygrad: memory of copies is held for longer than its use; hostjit: until the last use."""
    steps = ["g g1", "g1 h1", "g1 g2", "g2 h2", "g2 g3", "g3 h3"]
    plan = plan_of(on_devices(steps, "%h1, %h2, %h3"))
    assert plan.gpu_arena == plan.gpu_lower_bound == 2 * 4096
    assert plan.buffers["%g1"].offset == plan.buffers["%g3"].offset  # after the copy of %g1
