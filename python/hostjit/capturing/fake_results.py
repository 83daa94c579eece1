# SPDX-License-Identifier: Apache-2.0
"""Rules for the fake tensors that operators return, in the place of PyTorch's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch._decomp import decomposition_table
from torch._subclasses import fake_impls

__all__ = ["fake_results_by"]

# rule(mode, func, *args, **kwargs): the results, or NotImplemented.
FakeRule = Callable[..., Any]


@contextlib.contextmanager
def fake_results_by(rules: Mapping[torch._ops.OpOverload, FakeRule]) -> Iterator[None]:
    """Have fake tensors know the results of operators by these rules, not by taking them apart."""
    with (
        mock.patch.dict(decomposition_table),
        mock.patch.dict(fake_impls.op_implementations_dict, rules),
    ):
        for operator in rules:
            decomposition_table.pop(operator, None)
        yield
