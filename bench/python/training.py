# SPDX-License-Identifier: Apache-2.0
"""Microseconds of a training step: forward, loss, backward, AdamW, gradients set to None.

python bench/python/training.py
python bench/python/training.py --trainers eager,hostjit --workloads policy_b1 --rounds 101
"""

import argparse
import copy
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from comparison import COMPILERS, add_options, begin, compare, report
from measure import Timed
from names import names_of
from report import Row
from torch import Tensor, nn
from workloads import WORKLOADS, Workload

# Steps before the comparison: state is made, and what compiles has compiled.
STEPS = 5

# Those with parameters to train, whose gradients do not vanish.
DEFAULT_WORKLOADS = ("policy_b1", "lnmlp_b1", "chain32", "lnmlp_b512")


class Trainer:
    """One model with its optimizer; the loss and the optimizer's step are what is compiled.

    `options` are those of the optimizer.
    """

    def __init__(self, workload: Workload, compile: Callable[[Any], Any], **options: Any) -> None:
        self.module = copy.deepcopy(workload.module()).train()
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-3, **options)
        module = self.module

        def loss(*inputs: Tensor) -> Tensor:
            return nn.functional.mse_loss(module(*inputs[:-1]), inputs[-1])

        self._loss = compile(loss)
        self._update = compile(self.optimizer.step)

    def step(self, *inputs: Tensor) -> None:
        self._loss(*inputs).backward()
        self._update()
        self.optimizer.zero_grad()


class WholeStep(Trainer):
    """The same as one compiled function, which returns the loss as a number."""

    def __init__(self, workload: Workload, compile: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(workload, lambda target: target, **options)
        self.step = compile(self.whole_step)  # type: ignore[method-assign]

    def whole_step(self, *inputs: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = self._loss(*inputs)
        loss.backward()
        self.optimizer.step()
        return loss.item()


TRAINERS: dict[str, Callable[[Workload], Trainer]] = {
    **{name: partial(Trainer, compile=compile) for name, compile in COMPILERS.items()},
    "hostjit_step": partial(WholeStep, compile=COMPILERS["hostjit"]),
}


def main() -> int:
    arguments = parse()
    begin(arguments.threads)
    rows: list[Row] = []
    for name in arguments.workloads:
        rows += measure(WORKLOADS[name], arguments.trainers, arguments.rounds)
    return report(rows, arguments.json, arguments.markdown)


def measure(workload: Workload, names: list[str], rounds: int) -> list[Row]:
    """Train by each name, compare the parameters with eager's, then time those that agree."""
    inputs = inputs_and_target(workload)
    expected = train(TRAINERS["eager"](workload), inputs)

    def prepare(name: str) -> Timed:
        trainer = TRAINERS[name](workload)
        check_parameters(train(trainer, inputs), expected)
        return Timed(trainer.step, inputs)

    return compare(workload.name, {name: partial(prepare, name) for name in names}, rounds)


def inputs_and_target(workload: Workload) -> tuple[Tensor, ...]:
    inputs = workload.inputs()
    with torch.no_grad():
        return (*inputs, torch.zeros_like(workload.module()(*inputs)))


def check_parameters(found: list[Tensor], expected: list[Tensor]) -> None:
    # Adam divides gradients by their own size: those of rounding move parameters too.
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-3)


def train(trainer: Trainer, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    for _ in range(STEPS):
        trainer.step(*inputs)
    return [parameter.detach().clone() for parameter in trainer.module.parameters()]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Microseconds of a training step.")
    parser.add_argument("--trainers", type=names_of(TRAINERS), default=list(TRAINERS))
    parser.add_argument("--workloads", type=names_of(WORKLOADS), default=list(DEFAULT_WORKLOADS))
    add_options(parser)
    return parser.parse_args()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    sys.exit(main())
