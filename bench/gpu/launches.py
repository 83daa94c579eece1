# SPDX-License-Identifier: Apache-2.0
"""Launches alone: a Host IR program of a hundred, beside loops over the driver's functions."""

import inspect
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from floor import ELEMENTS, ENTRY, KERNEL, LAUNCHES, REPETITIONS, Floor, FloorTimed
from side_by_side import Candidate, candidate
from timing import Device

import hostjit

CHAIN = "chain_of_launches"
# What `hostjit.compile` is told, by the name of the subject.
WAYS: dict[str, dict[str, Any]] = {
    "hostjit": {},
    "hostjit_evaluator": {"runtime": "evaluator"},
    "hostjit_reusing": {"reuse_outputs": True},
    "hostjit_graphs_off": {"graphs": "off"},
    "hostjit_graphs_auto": {"graphs": "auto"},
    "hostjit_graphs_on": {"graphs": "on"},
}


def program(launches: int, device: str) -> str:
    """Return Host IR that adds 1 as often as it launches, each time into new memory."""
    place = f"{device}:0" if device == "cuda" else device
    tensor = f"tensor<f32, [{ELEMENTS}], {place}>"
    lines = [f"program @chain(%x0: {tensor}) {{"]
    lines.append(f"  %count = index_constant(value={ELEMENTS}) : index")
    for index in range(launches):
        lines.append(f"  %x{index + 1} = allocate() : {tensor}")
        lines.append(
            f'  launch_kernel(kernel="{ENTRY}", inputs=[%x{index}], outputs=[%x{index + 1}], '
            f"scalars=[%count], grid=[1, 1, 1], block=[{ELEMENTS}, 1, 1])"
        )
    lines += [f"  return %x{launches}", "}"]
    lines.append(
        f'kernel @{ENTRY} ptx(entry="{ENTRY}", parameters=[ptr, ptr, i64]) """\n{KERNEL}"""'
    )
    return "\n".join(lines) + "\n"


def preparations(
    name: str, device: Device, subjects: Sequence[str]
) -> dict[str, Callable[[], Candidate]]:
    """Return candidates: programs of one launch and of many, with the same input and others."""
    torch.set_grad_enabled(False)
    found: dict[str, Callable[[], Candidate]] = {}
    known = inspect.signature(hostjit.compile).parameters
    for way, arguments in WAYS.items():
        if way not in subjects or not known.keys() >= arguments.keys():
            continue
        for launches in (LAUNCHES, 1):
            suffix = "" if launches == LAUNCHES else f"_{launches}"
            found[f"{way}{suffix}"] = partial(prepare, device, launches, arguments)
        found[f"{way}_other_input"] = partial(prepare, device, LAUNCHES, arguments, inputs=2)
    found["torch.empty"] = partial(
        candidate, device, partial(torch.empty, ELEMENTS, device=device.name), ()
    )
    if device.is_cuda:
        found |= floors()
    return found


def prepare(device: Device, launches: int, arguments: dict[str, Any], inputs: int = 1) -> Candidate:
    """Compile and check a chain; with several inputs, each call has another one than the last."""
    chain = hostjit.compile(program(launches, device.name), **arguments)
    given = [torch.full((ELEMENTS,), float(i), device=device.name) for i in range(inputs)]

    def check() -> None:
        for x in given:
            torch.testing.assert_close(chain(x), x + launches)

    for _ in range(3):
        check()
    if inputs == 1:
        return candidate(device, chain, given, check=check)
    turns = itertools.cycle(given)
    return candidate(device, lambda: chain(next(turns)), (), check=check)


def floors() -> dict[str, Callable[[], Candidate]]:
    floor: list[Floor] = []

    def prepare_loop(loop: str, own_stream: bool) -> Candidate:
        if not floor:
            floor.append(Floor())
        what = "synchronised" if loop.endswith("_synchronised") else "host"
        return Candidate({what: FloorTimed(floor[0], loop, own_stream)})

    return {
        f"driver: {loop}{', own stream' if own_stream else ''}": partial(
            prepare_loop, loop, own_stream
        )
        for loop in REPETITIONS
        for own_stream in (False, True)
        if not (own_stream and loop.startswith("set_") and not loop.endswith("launch"))
    }
