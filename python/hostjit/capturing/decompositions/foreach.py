# SPDX-License-Identifier: Apache-2.0
"""Operators on lists of tensors (`torch._foreach_mul_`) as one operator on each tensor.

That is what they are on the CPU, to the bit (`aten/src/ATen/native/ForeachOpsKernels.cpp`). Each
then fuses with what comes before it and after it. On CUDA they are one launch for all tensors, and
stay.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from hostjit.capturing.errors import CaptureError, CaptureFailure

__all__ = ["for_each_tensor", "is_foreach"]

_PREFIX = "aten::_foreach_"
# What ATen calls for one tensor, where that is not the method of the same name.
_OTHERS = {"maximum": "clamp_min", "minimum": "clamp_max"}
_Function = Callable[..., Any]


def is_foreach(operator: torch._ops.OpOverload) -> bool:
    """Tell whether an operator is one on lists of tensors."""
    name: str = operator.name()
    return name.startswith(_PREFIX)


@functools.cache
def for_each_tensor(operator: torch._ops.OpOverload) -> _Function | None:
    """Return what does the same tensor by tensor; None where that is not known.

    It returns NotImplemented for lists that the operator refuses.
    """
    schema = operator._schema
    name = schema.name.removeprefix(_PREFIX)
    base = name.removesuffix("_")
    compute = _for_one(name, schema.overload_name)
    if compute is None:
        return None
    # What it writes, if it computes that.
    plain = None if name == base or base == "copy" else _for_one(base, schema.overload_name)
    arguments = schema.arguments
    lists = {x.name for x in arguments if isinstance(x.type, torch._C.ListType)}
    by_name = {x.name for x in arguments if x.kwarg_only}
    defaults = {x.name: x.default_value for x in arguments if x.has_default_value()}

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        named = dict(zip((x.name for x in arguments), args, strict=False))
        found = {**defaults, **named, **kwargs}
        given = {x.name: found[x.name] for x in arguments}
        lengths = {len(given[name]) for name in lists}
        if len(lengths) != 1 or 0 in lengths:
            return NotImplemented
        others = [value for name, value in given.items() if name not in lists]
        if any(isinstance(value, torch.Tensor) and value.dim() > 0 for value in others):
            return NotImplemented
        if base in _OTHERS and any(x.dtype is torch.bool for x in given["self"]):
            return NotImplemented  # which raises, for there are no bounds of truth values
        results = []
        for index in range(*lengths):
            each = {name: x[index] if name in lists else x for name, x in given.items()}
            keywords = {name: each.pop(name) for name in [*each] if name in by_name}
            if plain is not None:
                _check_type(each["self"], plain, each, keywords)
            results.append(compute(*each.values(), **keywords))
        return results if schema.returns else None

    return decomposition


def _check_type(
    written: torch.Tensor, plain: _Function, given: dict[str, Any], keywords: dict[str, Any]
) -> None:
    """Refuse a result that eager does not write to a tensor; functionalisation converts it."""
    with disable_proxy_modes_tracing():
        made = plain(*given.values(), **keywords).dtype
    if not torch.can_cast(made, written.dtype):
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_PROGRAM,
            f"a result of {made} is written to a tensor of {written.dtype}",
        )


def _for_one(name: str, overload: str) -> _Function | None:
    """Return what computes the result for one tensor of a list."""
    base = name.removesuffix("_")
    if overload == "ScalarAndTensor":
        return torch.pow
    if base == "norm":
        return lambda x, order, dtype: torch.linalg.vector_norm(x, order, dtype=dtype)
    if base in ("addcmul", "addcdiv"):
        if overload == "Tensor":
            return None  # which reads the numbers that are in it
        method = getattr(torch.Tensor, name)
        return lambda x, first, second, value: method(x, first, second, value=value)
    known = None if base in ("mm", "powsum") else _OTHERS.get(base, base)
    suffix = name.removeprefix(base)
    return None if known is None else getattr(torch.Tensor, known + suffix, None)
