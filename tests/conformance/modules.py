# SPDX-License-Identifier: Apache-2.0
"""The modules of `module_db`, in training mode and in evaluation mode."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves

from conformance.case import BACKWARD, DTYPES, Call, Case, seed_everything, spread

__all__ = ["module_calls", "module_cases"]

_PARTS = [
    *("float32", "float64", "bfloat16", "complex64"),
    *(name + BACKWARD for name in ("float32", "float64", "bfloat16", "complex64")),
]


def module_cases() -> list[Case]:
    """Return all cases, in the order of the database."""
    return [
        Case(entry, part)
        for entry, info in _entries().items()
        for part in _PARTS
        if _dtype_of_samples(part.removesuffix(BACKWARD)) in info.dtypes
    ]


def _dtype_of_samples(dtype: str) -> torch.dtype:
    """The database says nothing of half precision: modules are asked that take float32."""
    return DTYPES["float32" if dtype == "bfloat16" else dtype]


def module_calls(case: Case, limit: int | None, device: str) -> Iterator[Call]:
    """Make the calls of a case: each sample of the database in both modes."""
    info = _entries()[case.entry]
    calls = [
        (sample, training)
        for training in (True, False)
        for sample in info.module_inputs_func(
            info,
            device=device,
            dtype=DTYPES[case.dtype],
            requires_grad=case.backward,
            training=training,
        )
    ]
    for sample, training in spread(calls, limit):
        seed_everything()
        made = sample.constructor_input
        module = info.module_cls(*made.args, **made.kwargs)
        module = module.to(device, DTYPES[case.dtype]).train(training)
        if not case.backward and not info.is_lazy:
            module.requires_grad_(False)
        yield Call(
            function=module,
            args=tuple(sample.forward_input.args),
            kwargs=dict(sample.forward_input.kwargs),
            differentiate=tree_leaves if case.backward else None,
        )


@functools.cache
def _entries() -> dict[str, Any]:
    return {info.name: info for info in module_db}
