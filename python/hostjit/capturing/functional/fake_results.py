# SPDX-License-Identifier: Apache-2.0
"""Rules for the fake tensors that operators return, in the place of PyTorch's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses import fake_impls

from hostjit.replacements import replaced_items

__all__ = ["fake_results_by"]

# rule(mode, func, *args, **kwargs): the results, or NotImplemented.
FakeRule = Callable[..., Any]


@contextlib.contextmanager
def fake_results_by(rules: Mapping[torch._ops.OpOverload, FakeRule]) -> Iterator[None]:
    """Have fake tensors know the results of operators by these rules, not by taking them apart."""
    with (
        replaced_items(decomposition_table, {}, without=rules.keys()),
        replaced_items(fake_impls.op_implementations_dict, rules),
    ):
        yield
