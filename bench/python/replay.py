# SPDX-License-Identifier: Apache-2.0
"""Nanoseconds per replay of a recorded call, and per kernel of one.

python bench/python/replay.py
python bench/python/replay.py --ways eager,capture --rounds 101

Calls of one kernel with 2 and 16 inputs, and chains of 1 to 100 kernels that cannot be fused; the
slope of a chain is what one more kernel takes. All of them on 16 elements, so that little is
arithmetic. tinygrad's TinyJit, where it is installed, has the same formulas.
"""

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from comparison import add_options, begin, compare, report
from measure import Timed
from names import names_of
from report import Row

import hostjit

SIZE = 16
CHAIN = (1, 2, 5, 10, 20, 50, 100)

# Functions of (cat, inputs): `cat` joins a list of tensors.
Formula = Callable[..., Any]


def add(_: Any, a: Any, b: Any) -> Any:
    return a + b


def add_all(_: Any, *inputs: Any) -> Any:
    total = inputs[0]
    for value in inputs[1:]:
        total = total + value
    return total


def chain(length: int) -> Formula:
    def rotate(cat: Any, x: Any) -> Any:
        for _ in range(length):
            x = cat([x[SIZE // 2 :], x[: SIZE // 2]]) + 1.0  # halves change places
        return x

    return rotate


WORKLOADS: dict[str, tuple[Formula, int]] = {
    "add2": (add, 2),
    "add16": (add_all, 16),
    **{f"chain{length}": (chain(length), 1) for length in CHAIN},
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda target: target,
    "capture": hostjit.capture,
    "capture_reuse": lambda target: hostjit.capture(target, reuse_outputs=True),
    "hostjit": hostjit.compile,
}


def main() -> int:
    arguments = parse()
    begin(arguments.threads)
    rows: list[Row] = []
    with torch.no_grad():
        for name in arguments.workloads:
            ways = {way: partial(prepare, way, name) for way in arguments.ways}
            rows += compare(name, ways, arguments.rounds)
    status = report(rows, arguments.json, arguments.markdown)
    for way in arguments.ways:
        print_slope(way, rows)
    return status


def prepare(way: str, workload: str) -> Timed:
    """Return what is timed; raises where its result is not eager's."""
    formula, count = WORKLOADS[workload]
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(SIZE, generator=generator) for _ in range(count)]
    expected = formula(torch.cat, *inputs)
    if way == "tinygrad":
        return prepare_tinygrad(formula, inputs, expected)
    function = WAYS[way](partial(formula, torch.cat))
    for _ in range(3):
        torch.testing.assert_close(function(*inputs), expected)
    return Timed(function, inputs)


def prepare_tinygrad(formula: Formula, inputs: list[torch.Tensor], expected: torch.Tensor) -> Timed:
    os.environ.setdefault("DEV", "CPU")
    tinygrad: Any = importlib.import_module("tinygrad")

    def cat(parts: list[Any]) -> Any:
        return parts[0].cat(*parts[1:])

    given = [tinygrad.Tensor(tensor.numpy()).realize() for tensor in inputs]
    replay = tinygrad.TinyJit(lambda *values: formula(cat, *values).realize())
    synchronize = tinygrad.Device[tinygrad.Device.DEFAULT].synchronize

    def function(*values: Any) -> Any:
        result = replay(*values)
        synchronize()
        return result

    for _ in range(3):
        found = torch.from_numpy(function(*given).numpy().copy())
        torch.testing.assert_close(found, expected)
    return Timed(function, given)


def print_slope(way: str, rows: list[Row]) -> None:
    """Print what a kernel more takes, by the fastest rounds: others hold what else ran."""
    times = {row.workload: row.min_us * 1e3 for row in rows if row.peer == way and not row.failure}
    known = [length for length in CHAIN if f"chain{length}" in times]
    for first, last in ((known[:1], known[-2:-1]), (known[:1], known[-1:])):
        if first and last and first != last:
            low, high = first[0], last[0]
            slope = (times[f"chain{high}"] - times[f"chain{low}"]) / (high - low)
            print(f"{way}: {slope:.1f} ns per kernel, {low} to {high} kernels, fastest rounds")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    installed = ["tinygrad"] if importlib.util.find_spec("tinygrad") else []
    parser.add_argument("--ways", type=names_of([*WAYS, "tinygrad"]), default=[*WAYS, *installed])
    parser.add_argument("--workloads", type=names_of(WORKLOADS), default=list(WORKLOADS))
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
