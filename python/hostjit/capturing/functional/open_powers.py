# SPDX-License-Identifier: Apache-2.0
"""Powers by open numbers, of which fake tensors ask nothing.

Those of torch 2.11 compare the numbers with 1, 2 and 0.5, and programs would be of the answers.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch._prims
import torch._refs

__all__ = ["powers_of_open_numbers"]


@contextlib.contextmanager
def powers_of_open_numbers() -> Iterator[None]:
    """Have them computed so, in this thread."""
    if torch.__version__ >= "2.12":
        yield
        return
    owner = threading.get_ident()
    cell = _function_of_powers()
    original = cell.cell_contents

    def power(a: Any, b: Any) -> Any:
        is_open = any(isinstance(value, (torch.SymInt, torch.SymFloat)) for value in (a, b))
        if is_open and threading.get_ident() == owner:
            return torch._prims.pow(a, b)
        return original(a, b)

    cell.cell_contents = power
    try:
        yield
    finally:
        cell.cell_contents = original


def _function_of_powers() -> types.CellType:
    """Return where PyTorch's reference of `pow` has what computes it, behind promoting types."""
    reference: Any = torch._refs.pow
    while "prim" not in reference.__code__.co_freevars:
        reference = _variable(reference, "fn").cell_contents
    return _variable(reference, "prim")


def _variable(function: Any, name: str) -> types.CellType:
    cell: types.CellType = function.__closure__[function.__code__.co_freevars.index(name)]
    return cell
