# SPDX-License-Identifier: Apache-2.0
"""Microseconds of functions that nobody can capture whole: prints, masks, decisions, whole steps.

python bench/python/parts.py
python bench/python/parts.py --compilers eager,hostjit --cases step,masked --rounds 101
"""

import argparse
import io
import itertools
import json
import sys
import time
import types
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import machine
import torch
from measure import Timed, interleave
from names import names_of
from report import Row, table
from torch import Tensor, nn

import hostjit

# Calls before the comparison: what compiles has compiled.
CALLS = 6
NOWHERE = io.StringIO()

Function = Callable[..., Any]
Case = tuple[Function, tuple[Tensor, ...]]

COMPILERS: dict[str, Callable[[Function], Function]] = {
    "eager": lambda function: function,
    "compile": torch.compile,
    "compile_hostjit": lambda function: torch.compile(function, backend="hostjit"),
    "hostjit": hostjit.compile,
}


def printing() -> Case:
    """Pointwise work with a print in the middle."""

    def function(x: Tensor) -> Tensor:
        y = (x * 2).relu() + 1
        print("half way", file=NOWHERE)
        return (y * 3).tanh() - x

    return function, (torch.randn(64),)


def nonzero() -> Case:
    """Pointwise work before and after the places of what is positive."""

    def function(x: Tensor) -> Tensor:
        places = ((x * 2).tanh() + 0.1 > 0).nonzero()
        return (places.float() * 2 + 1).sqrt()

    return function, (torch.randn(64),)


def branch() -> Case:
    """A decision on the value of a tensor."""

    def function(x: Tensor) -> Tensor:
        y = (x * 2).tanh() + 1
        return y.exp() * x if y.sum() > 0 else y.sigmoid() - x

    return function, (torch.randn(64),)


def layers(*widths: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(m, n), nn.Tanh()) for m, n in itertools.pairwise(widths))
    )


def masked() -> Case:
    """A model that goes on with the rows that a mask leaves."""
    first, second = layers(16, 32, 16), layers(16, 32, 4)

    def function(x: Tensor, mask: Tensor) -> Tensor:
        with torch.no_grad():
            return second(first(x)[mask])

    return function, (torch.randn(8, 16), torch.arange(8) % 3 > 0)


def step() -> Case:
    """Forward, loss, backward, AdamW and the loss as a number, in one function."""
    model = layers(32, 64, 64, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def function(x: Tensor, target: Tensor) -> float:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    return function, (torch.randn(1, 32), torch.randn(1, 8))


CASES: dict[str, Callable[[], Case]] = {
    case.__name__: case for case in (printing, nonzero, branch, masked, step)
}


def with_own_code(function: Any) -> Function:
    """Copy a function: Dynamo would search what it compiled for others of the same code."""
    code = function.__code__.replace()
    return types.FunctionType(code, function.__globals__, None, None, function.__closure__)


def measure(name: str, compilers: list[str], rounds: int) -> list[Row]:
    """Compare the results of each compiler with eager's, then time those that agree."""
    expected = calls(*make(name, "eager"))
    timed: dict[str, Timed] = {}
    seconds: dict[str, float] = {}
    failures: dict[str, str] = {}
    for compiler in compilers:
        begin = time.perf_counter()
        try:
            function, arguments = make(name, compiler)
            torch.testing.assert_close(calls(function, arguments), expected, rtol=1e-3, atol=1e-4)
        except Exception as error:
            text = " ".join(str(error).split())[:160]
            failures[compiler] = f"FAILED {type(error).__name__}: {text}"
            continue
        seconds[compiler] = time.perf_counter() - begin
        timed[compiler] = Timed(function, arguments)
    timings = dict(zip(timed, interleave(list(timed.values()), rounds), strict=True))
    return [
        Row(name, compiler, failures[compiler])
        if compiler in failures
        else Row(
            name,
            compiler,
            median_us=timings[compiler].median * 1e6,
            min_us=timings[compiler].minimum * 1e6,
            calls_per_round=timings[compiler].calls_per_round,
            prepare_s=seconds[compiler],
            rounds_us=[value * 1e6 for value in timings[compiler].rounds],
        )
        for compiler in compilers
    ]


def make(name: str, compiler: str) -> Case:
    torch.manual_seed(0)
    function, arguments = CASES[name]()
    return COMPILERS[compiler](with_own_code(function)), arguments


def calls(function: Function, arguments: tuple[Tensor, ...]) -> list[Any]:
    return [function(*arguments) for _ in range(CALLS)]


def main() -> int:
    arguments = parse()
    machine.pin(arguments.threads)
    print("\n".join(f"{key}: {value}" for key, value in machine.facts().items()), file=sys.stderr)
    rows: list[Row] = []
    for name in arguments.cases:
        rows += measure(name, arguments.compilers, arguments.rounds)
    print(table(rows, arguments.markdown))
    if arguments.json:
        content = {"machine": machine.facts(), "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 1 if any(row.failure for row in rows) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Microseconds of calls that run in parts.")
    parser.add_argument("--compilers", type=names_of(COMPILERS), default=list(COMPILERS))
    parser.add_argument("--cases", type=names_of(CASES), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=51, help="at least 30 for a reported number")
    parser.add_argument("--threads", type=int, default=1, help="threads and cores to use")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round here")
    parser.add_argument("--markdown", action="store_true", help="print a table for a page")
    return parser.parse_args()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="hostjit")
    warnings.filterwarnings("ignore", category=FutureWarning)
    sys.exit(main())
