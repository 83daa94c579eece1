# SPDX-License-Identifier: Apache-2.0
"""Python kernels of operators, which traces run in the place of those of C++."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

__all__ = ["Kernels", "python_kernels_changed"]

# By dispatch key; None for no kernel in Python.
Kernels = Mapping[torch._C.DispatchKey, Callable[..., Any] | None]


@contextlib.contextmanager
def python_kernels_changed(changes: Mapping[torch._ops.OpOverload, Kernels]) -> Iterator[None]:
    """Trace operators with other Python kernels."""
    saved = {operator: dict(operator.py_kernels) for operator in changes}
    for operator, kernels in changes.items():
        for key, kernel in kernels.items():
            operator.py_kernels.pop(key, None)
            if kernel is not None:
                operator.py_kernels[key] = kernel
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, kernels in saved.items():
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()
