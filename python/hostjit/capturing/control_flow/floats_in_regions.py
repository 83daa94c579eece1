# SPDX-License-Identifier: Apache-2.0
"""Open floats that regions of `cond`, `while_loop` and `scan` read, as those of `map` may.

All that keeps them out is a look of PyTorch's at the types of what a region is given.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._higher_order_ops import utils

from hostjit.replacements import replaced_attribute

__all__ = ["regions_take_floats"]

_CHECK = "validate_subgraph_args_types"
_MODULES = ("cond", "while_loop", "scan")


@contextlib.contextmanager
def regions_take_floats() -> Iterator[None]:
    """Let regions take floats that differ from call to call, for some time."""
    check = getattr(utils, _CHECK, None)
    if check is None:
        yield
        return

    def check_others(lifted_args: Sequence[Any]) -> None:
        check(tuple(value for value in lifted_args if not isinstance(value, torch.SymFloat)))

    with contextlib.ExitStack() as stack:
        for name in _MODULES:
            # The package has the operators by these names.
            module = importlib.import_module(f"torch._higher_order_ops.{name}")
            if getattr(module, _CHECK, None) is check:
                stack.enter_context(replaced_attribute(module, _CHECK, check_others))
        yield
