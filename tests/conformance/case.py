# SPDX-License-Identifier: Apache-2.0
"""What is judged: a case is named, and has calls.

A case is named "entry/dtype" for calls without gradients, "entry/dtype.backward" for calls with
them, or "entry/errors" for the calls that must raise.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

__all__ = [
    "BACKWARD",
    "DTYPES",
    "EAGERLY",
    "ERRORS",
    "PER_SIZE",
    "Call",
    "Case",
    "seed_everything",
    "spread",
]

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "bool": torch.bool,
    "complex64": torch.complex64,
}
ERRORS = "errors"
BACKWARD = ".backward"
# What became of a call that is right, but not compiled: the subject said so.
EAGERLY = "eagerly"
# Or right, but there is a program for each size.
PER_SIZE = "per size"


@dataclasses.dataclass(frozen=True, order=True)
class Case:
    """One entry of a database, and what of it is called.

    Attributes:
        entry: "name" or "name.variant" of an operator, "nn.Name" of a module, "optim.Name".
        part: a dtype, a dtype and BACKWARD, or ERRORS.
    """

    entry: str
    part: str

    def __str__(self) -> str:
        return f"{self.entry}/{self.part}"

    @property
    def dtype(self) -> str:
        return self.part.removesuffix(BACKWARD)

    @property
    def backward(self) -> bool:
        return self.part.endswith(BACKWARD)

    @property
    def kind(self) -> str:
        """What the summary counts it with."""
        owner, _, rest = self.entry.partition(".")
        name = {"optim": "optimizers"}.get(owner, "operators")
        if owner == "nn" and not rest.startswith("functional."):
            name = "modules"
        if self.part == ERRORS:
            return f"{name}, errors"
        return f"{name}, {'backward' if self.backward else 'forward'}"

    @staticmethod
    def parse(text: str) -> Case:
        return Case(*text.rsplit("/", 1))


@dataclasses.dataclass
class Call:
    """One call of an operator or of a module.

    Attributes:
        function: takes the arguments; a module is compiled itself, and its parameters and buffers
            count among the arguments.
        args, kwargs: the arguments; the call may change them.
        tolerance: (rtol, atol) from the database, None for those of `assert_close`.
        uninitialised: the values of the result mean nothing.
        differentiate: with gradients, makes of the result the leaves to differentiate.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tolerance: tuple[float, float] | None = None
    uninitialised: bool = False
    differentiate: Callable[[Any], list[Any]] | None = None


def seed_everything() -> None:
    """Begin the random numbers anew, of every generator that the databases draw from."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def spread(samples: Sequence[Any], limit: int | None) -> list[Any]:
    """Return `limit` of the samples, as far from each other as they are; all without a limit."""
    if limit is None or len(samples) <= limit:
        return list(samples)
    return [samples[index * len(samples) // limit] for index in range(limit)]
