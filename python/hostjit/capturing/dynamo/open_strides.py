# SPDX-License-Identifier: Apache-2.0
"""Strides of tensors of open size, and of what is made of them.

A stride that no size tells, such as the length of the buffer that `buffer[:, :n]` is of, is known:
calls with another have a program of their own. Dynamo takes it for a number that varies.

Shapes of results do not depend on whether an operand happens to be contiguous. Fake tensors take a
shorter way to the strides of a pointwise result where all operands are contiguous, and asking would
tie the program to the answer: `cache[:, :n]` is contiguous for one n only. The longer way gives the
same strides. Recorded nodes say it, too, for nobody here.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import _prims_common
from torch._dynamo.source import TensorProperty, TensorPropertySource
from torch._subclasses import fake_impls
from torch.fx.experimental import _config
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.fx.passes import shape_prop

from hostjit.replacements import replaced_attribute

__all__ = ["contiguity_stays_open", "strides_known"]

_QUESTION = "is_contiguous_for_memory_format_or_false"


@contextlib.contextmanager
def contiguity_stays_open() -> Iterator[None]:
    """Take the longer way unless the shorter one is right for all sizes."""
    original = getattr(_prims_common, _QUESTION, None)
    config: Any = _config

    def is_known(tensor: Any, *, memory_format: torch.memory_format) -> bool:
        assert original is not None
        with config.patch(backed_size_oblivious=True):
            return bool(original(tensor, memory_format=memory_format))

    with contextlib.ExitStack() as stack:
        for module in (_prims_common, fake_impls, shape_prop):
            if original is not None and hasattr(module, _QUESTION):
                stack.enter_context(replaced_attribute(module, _QUESTION, is_known))
        yield


@contextlib.contextmanager
def strides_known() -> Iterator[None]:
    """Have Dynamo, in this thread, know the strides that are not made of sizes of their tensor."""
    original: Any = ShapeEnv.create_symbol
    owner = threading.get_ident()

    def create_symbol(
        self: Any,
        val: Any,
        source: Any,
        dynamic_dim: DimDynamic = DimDynamic.DUCK,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        is_stride = (
            isinstance(source, TensorPropertySource) and source.prop is TensorProperty.STRIDE
        )
        if threading.get_ident() == owner and is_stride:
            dynamic_dim = DimDynamic.STATIC
        return original(self, val, source, dynamic_dim, *args, **kwargs)

    with replaced_attribute(ShapeEnv, "create_symbol", create_symbol):
        yield
