# SPDX-License-Identifier: Apache-2.0
"""Microseconds of a training step: forward, loss, backward, AdamW, gradients set to None.

python bench/python/training.py
python bench/python/training.py --trainers eager,hostjit --workloads policy_b1 --rounds 101
"""

import argparse
import copy
import json
import sys
import time
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
from workloads import WORKLOADS, Workload

import hostjit

# Steps before the comparison: state is made, and what compiles has compiled.
STEPS = 5

Compile = Callable[[Any], Any]

TRAINERS: dict[str, Compile] = {
    "eager": lambda target: target,
    "compile": torch.compile,
    "compile_hostjit": lambda target: torch.compile(target, backend="hostjit"),
    "hostjit": hostjit.compile,
}
# Those with parameters to train, whose gradients do not vanish.
DEFAULT_WORKLOADS = ("policy_b1", "lnmlp_b1", "chain32", "lnmlp_b512")


class Trainer:
    """One model with its optimizer; the loss and the optimizer's step are what is compiled."""

    def __init__(self, workload: Workload, compile: Compile) -> None:
        self.module = copy.deepcopy(workload.module()).train()
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-3)
        module = self.module

        def loss(*inputs: Tensor) -> Tensor:
            return nn.functional.mse_loss(module(*inputs[:-1]), inputs[-1])

        self._loss = compile(loss)
        self._update = compile(self.optimizer.step)

    def step(self, *inputs: Tensor) -> None:
        self._loss(*inputs).backward()
        self._update()
        self.optimizer.zero_grad()


def main() -> int:
    arguments = parse()
    machine.pin(arguments.threads)
    print("\n".join(f"{key}: {value}" for key, value in machine.facts().items()), file=sys.stderr)
    rows: list[Row] = []
    for name in arguments.workloads:
        rows += measure(WORKLOADS[name], arguments.trainers, arguments.rounds)
    print(table(rows, arguments.markdown))
    if arguments.json:
        content = {"machine": machine.facts(), "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 1 if any(row.failure for row in rows) else 0


def measure(workload: Workload, names: list[str], rounds: int) -> list[Row]:
    """Train by each name, compare the parameters with eager's, then time those that agree."""
    inputs = workload.inputs()
    with torch.no_grad():
        inputs = (*inputs, torch.zeros_like(workload.module()(*inputs)))
    expected = train(Trainer(workload, TRAINERS["eager"]), inputs)
    timed: dict[str, Timed] = {}
    seconds: dict[str, float] = {}
    failures: dict[str, str] = {}
    for name in names:
        begin = time.perf_counter()
        try:
            trainer = Trainer(workload, TRAINERS[name])
            found = train(trainer, inputs)
            # Adam divides gradients by their own size: those of rounding move parameters too.
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-3)
        except Exception as error:
            failures[name] = f"FAILED {type(error).__name__}: {' '.join(str(error).split())[:160]}"
            continue
        seconds[name] = time.perf_counter() - begin
        timed[name] = Timed(trainer.step, inputs)
    timings = dict(zip(timed, interleave(list(timed.values()), rounds), strict=True))
    return [
        Row(workload.name, name, failures[name])
        if name in failures
        else Row(
            workload.name,
            name,
            median_us=timings[name].median * 1e6,
            min_us=timings[name].minimum * 1e6,
            calls_per_round=timings[name].calls_per_round,
            prepare_s=seconds[name],
            rounds_us=[value * 1e6 for value in timings[name].rounds],
        )
        for name in names
    ]


def train(trainer: Trainer, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    for _ in range(STEPS):
        trainer.step(*inputs)
    return [parameter.detach().clone() for parameter in trainer.module.parameters()]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Microseconds of a training step.")
    parser.add_argument("--trainers", type=names_of(TRAINERS), default=list(TRAINERS))
    parser.add_argument("--workloads", type=names_of(WORKLOADS), default=list(DEFAULT_WORKLOADS))
    parser.add_argument("--rounds", type=int, default=51, help="at least 30 for a reported number")
    parser.add_argument("--threads", type=int, default=1, help="threads and cores to use")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round here")
    parser.add_argument("--markdown", action="store_true", help="print a table for a page")
    return parser.parse_args()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    sys.exit(main())
