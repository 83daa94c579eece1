# SPDX-License-Identifier: Apache-2.0
"""The operators of `op_db`: each with its dtypes, its gradients and its wrong inputs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torch.testing._internal import common_methods_invocations, common_utils
from torch.testing._internal.common_device_type import onlyCPU, onlyCUDA, toleranceOverride
from torch.testing._internal.opinfo import core
from torch.utils._pytree import tree_leaves

from conformance.case import BACKWARD, DTYPES, ERRORS, Call, Case, spread

__all__ = ["operator_calls", "operator_cases", "operators_unwrapped"]

# Their results are memory that nobody wrote, or views of it.
_UNINITIALISED = frozenset(
    {
        *("empty", "empty_like", "empty_permuted", "empty_strided"),
        *("new_empty", "new_empty_strided", "resize_", "resize_as_"),
    }
)
# Tests of the database whose tolerances are those of one computation done in two ways.
_TOLERANCE_TESTS = (None, "TestCommon", "TestInductorOpInfo", "TestDecomp")


_DIFFERENTIABLE = ("float32", "float64", "bfloat16", "complex64")


def operator_cases(device: str) -> list[Case]:
    """Return all cases on a device, in the order of the database."""
    found = []
    for entry, op in _entries().items():
        if (onlyCPU if device == "cuda" else onlyCUDA) in op.decorators:
            continue
        names = [name for name, dtype in DTYPES.items() if op.supports_dtype(dtype, device)]
        names += [
            f"{name}{BACKWARD}" for name in _DIFFERENTIABLE if _has_gradients(op, name, device)
        ]
        if op.error_inputs_func is not None:
            names.append(ERRORS)
        found += [Case(entry, name) for name in names]
    return found


def operator_calls(case: Case, limit: int | None, device: str) -> Iterator[Call]:
    """Make the calls of a case, at most `limit` of them, spread over all that there are."""
    op = _entries()[case.entry]
    if case.dtype == ERRORS:
        samples = [error.sample_input for error in op.error_inputs(device)]
    else:
        dtype = DTYPES[case.dtype]
        samples = list(op.sample_inputs(device, dtype, requires_grad=case.backward))
    for sample in spread(samples, limit):
        yield Call(
            function=op.op,
            args=(sample.input, *sample.args),
            kwargs=dict(sample.kwargs),
            tolerance=_tolerance(op, case.dtype),
            uninitialised=op.name in _UNINITIALISED,
            differentiate=_differentiated(sample) if case.backward else None,
        )


def _has_gradients(op: Any, dtype: str, device: str) -> bool:
    return op.supports_autograd and DTYPES[dtype] in op.supported_backward_dtypes(device)


def _differentiated(sample: Any) -> Callable[[Any], list[Any]]:
    """What of a result has a gradient that means something, as the database says."""
    return lambda result: tree_leaves(sample.output_process_fn_grad(result))


@contextlib.contextmanager
def operators_unwrapped() -> Iterator[None]:
    """Take the seeding away that the database wraps around random operators; we seed ourselves.

    Seeding and restoring a generator is no part of the operator, and cannot be captured. Nor does
    the database look for the test that runs a sample, in the source of every frame of the stack.
    """

    def call(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    def no_test() -> None:
        return None

    with (
        mock.patch.object(common_methods_invocations, "wrapper_set_seed", call),
        mock.patch.object(common_utils, "extract_test_fn", no_test),
        mock.patch.object(core, "extract_test_fn", no_test),
    ):
        yield


@functools.cache
def _entries() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for op in common_methods_invocations.op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        found[name.replace(" ", "_")] = op
    return found


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
