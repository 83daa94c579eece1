# SPDX-License-Identifier: Apache-2.0
"""Interpolation as ATen's own operators, forward and backward.

PyTorch's traces take it apart into indices and elements picked by them, which no kernel makes up
for: in channels_last that takes up to fifty times as long as the operator.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._decomp.decompositions import upsample_compute_output_size
from torch._prims_common import suggest_memory_format

from hostjit.capturing.python_kernels import Kernels, python_kernels_changed

__all__ = ["interpolation_in_one"]

Tensor = torch.Tensor

aten = torch.ops.aten

_COMPOSITES = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)
_META = torch._C.DispatchKey.Meta
_PACKETS = (
    *(aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d),
    *(aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d),
    *(aten._upsample_nearest_exact3d, aten.upsample_linear1d, aten.upsample_bilinear2d),
    *(aten.upsample_trilinear3d, aten.upsample_bicubic2d),
)
# Whose gradients have the memory format of the gradients that they take; others are contiguous.
_KEEP_FORMAT = (
    *(aten.upsample_nearest2d_backward, aten._upsample_nearest_exact2d_backward),
    *(aten.upsample_bilinear2d_backward, aten.upsample_trilinear3d_backward),
)


def interpolation_in_one() -> contextlib.AbstractContextManager[None]:
    """Trace interpolation as one operator, which takes the sizes of its result."""
    kernels: dict[torch._ops.OpOverload, Kernels] = {}
    for packet in _PACKETS:
        backward = getattr(aten, f"{packet.__name__}_backward")
        kernels[packet.default] = dict.fromkeys(_COMPOSITES)
        with_sizes = functools.partial(_with_sizes, packet.default)
        kernels[packet.vec] = dict.fromkeys(_COMPOSITES, with_sizes)
        kernels[backward.default] = {
            **dict.fromkeys(_COMPOSITES),
            _META: functools.partial(_gradient, backward),
        }
    return python_kernels_changed(kernels)


def _gradient(
    packet: Any, gradient: Tensor, _: Sequence[Any], input_size: Sequence[Any], *__: Any
) -> Tensor:
    """Make a result like that of the backward operator, which only knows sizes that are numbers."""
    result = gradient.new_empty(input_size)
    if packet not in _KEEP_FORMAT:
        return result
    return result.to(memory_format=suggest_memory_format(gradient))


def _with_sizes(
    whole: torch._ops.OpOverload, x: Tensor, output_size: Sequence[Any] | None, *options: Any
) -> Any:
    """Call the operator that takes sizes for one that may take factors, its last argument."""
    *others, factors = options
    sizes = upsample_compute_output_size(x.shape, output_size, factors)
    return whole(x, sizes, *others, *(factors or [None] * len(sizes)))
