# SPDX-License-Identifier: Apache-2.0
"""The cases: every entry of PyTorch's operator database, by dtype, and its wrong inputs.

A case is named "entry/dtype", or "entry/errors" for the calls that must raise. Its calls are made
lazily, from a fixed seed: a few thousand cases have some hundred thousand calls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy
import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_device_type import onlyCUDA, toleranceOverride

__all__ = [
    "ERRORS",
    "Call",
    "Case",
    "calls_of",
    "cases",
    "operators_unwrapped",
    "sample_cases",
    "seed_everything",
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

# Their results are memory that nobody wrote, or views of it.
_UNINITIALISED = frozenset(
    {
        *("empty", "empty_like", "empty_permuted", "empty_strided"),
        *("new_empty", "new_empty_strided", "resize_", "resize_as_"),
    }
)
# Tests of the database whose tolerances are those of one computation done in two ways.
_TOLERANCE_TESTS = (None, "TestCommon", "TestInductorOpInfo", "TestDecomp")


@dataclasses.dataclass(frozen=True, order=True)
class Case:
    """One entry of the database ("name" or "name.variant") with one dtype, or its errors."""

    entry: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.entry}/{self.dtype}"

    @staticmethod
    def parse(text: str) -> Case:
        return Case(*text.rsplit("/", 1))


@dataclasses.dataclass
class Call:
    """One call of an operator.

    Attributes:
        function: takes the sample's input, then its other arguments.
        args, kwargs: the arguments; the call may change them.
        tolerance: (rtol, atol) from the database, None for those of `assert_close`.
        uninitialised: the values of the result mean nothing.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tolerance: tuple[float, float] | None = None
    uninitialised: bool = False


def cases() -> list[Case]:
    """Return all cases, in the order of the database."""
    found = []
    for entry, op in _entries().items():
        if onlyCUDA in op.decorators:
            continue
        names = [name for name, dtype in DTYPES.items() if op.supports_dtype(dtype, "cpu")]
        if op.error_inputs_func is not None:
            names.append(ERRORS)
        found += [Case(entry, name) for name in names]
    return found


def sample_cases() -> list[Case]:
    """Return a case of every entry, of one dtype, and a third of the errors."""
    found: dict[str, list[Case]] = {}
    for case in cases():
        found.setdefault(case.entry, []).append(case)
    chosen = []
    for entry, group in found.items():
        number = zlib.crc32(entry.encode())
        forward = [case for case in group if case.dtype != ERRORS]
        chosen.append(forward[number % len(forward)])
        if group[-1].dtype == ERRORS and number % 3 == 0:
            chosen.append(group[-1])
    return chosen


def calls_of(case: Case, limit: int | None = None) -> Iterator[Call]:
    """Make the calls of a case, at most `limit` of them, spread over all that there are."""
    op = _entries()[case.entry]
    seed_everything()
    if case.dtype == ERRORS:
        samples = [error.sample_input for error in op.error_inputs("cpu")]
    else:
        samples = list(op.sample_inputs("cpu", DTYPES[case.dtype]))
    for sample in _spread(samples, limit):
        yield Call(
            function=op.op,
            args=(sample.input, *sample.args),
            kwargs=dict(sample.kwargs),
            tolerance=_tolerance(op, case.dtype),
            uninitialised=op.name in _UNINITIALISED,
        )


def seed_everything() -> None:
    """Begin the random numbers anew, of every generator that the database draws from."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)  # the generator that the database uses


@contextlib.contextmanager
def operators_unwrapped() -> Iterator[None]:
    """Take the seeding away that the database wraps around random operators; we seed ourselves.

    Seeding and restoring a generator is no part of the operator, and cannot be captured.
    """

    def call(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    with mock.patch.object(common_methods_invocations, "wrapper_set_seed", call):
        yield


@functools.cache
def _entries() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for op in common_methods_invocations.op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        found[name.replace(" ", "_")] = op
    return found


def _spread(samples: Sequence[Any], limit: int | None) -> list[Any]:
    if limit is None or len(samples) <= limit:
        return list(samples)
    return [samples[index * len(samples) // limit] for index in range(limit)]


def _tolerance(op: Any, dtype: str) -> tuple[float, float] | None:
    found: list[tuple[float, float]] = []
    for info in op.decorators:
        if getattr(info, "cls_name", "") not in _TOLERANCE_TESTS or not info.active_if:
            continue
        for decorator in info.decorators:
            if isinstance(decorator, toleranceOverride) and DTYPES.get(dtype) in decorator.d:
                tolerance = decorator.d[DTYPES[dtype]]
                found.append((tolerance.rtol, tolerance.atol))
    if not found:
        return None
    return max(rtol for rtol, _ in found), max(atol for _, atol in found)
