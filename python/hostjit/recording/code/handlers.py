# SPDX-License-Identifier: Apache-2.0
"""Whether users' code would handle an error of an operator that it runs."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from hostjit.capturing.dynamo.handled_code import is_handled
from hostjit.recording.code.libraries import is_library

__all__ = ["handler_around", "may_raise"]

# Operators that are no pointwise ones, views or reductions, and do not look at values.
_SAFE = frozenset(
    {
        *("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "cat", "stack"),
        *("native_layer_norm", "native_group_norm", "native_batch_norm", "_softmax", "cumsum"),
        *("_log_softmax", "clone", "copy", "copy_", "_to_copy", "detach", "zeros", "ones", "full"),
        *("empty", "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "zero_"),
        *("fill_", "select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter"),
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"),
        *("uniform_", "normal_", "random_"),
        *("arange", "lift_fresh", "alias", "constant_pad_nd", "roll", "flip", "mse_loss"),
        *("eye", "tril", "triu", "cumprod", "linalg_lu_solve", "linalg_solve_triangular"),
        *("cholesky_solve", "_cholesky_solve_helper", "_linalg_det", "_linalg_slogdet"),
    }
)
_SAFE_FAMILIES = ("new_", "empty", "_foreach_")
# Those that tell in a result whether they have failed, unless they are asked to raise.
_TELLING = frozenset(
    {"_linalg_solve_ex", "linalg_inv_ex", "linalg_cholesky_ex", "linalg_lu_factor_ex"}
)
# Of integers, these raise where they divide by zero, or for a negative power.
_DIVISIONS = ("div", "floor_divide", "remainder", "fmod", "pow", "_foreach_div", "_foreach_pow")


def may_raise(
    func: torch._ops.OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] = MappingProxyType({}),
) -> bool:
    """Tell whether an operator may raise for some values of its operands; errs to yes."""
    name = func._schema.name.removeprefix("aten::")
    if func.namespace != "aten":
        return True
    if name.startswith(_DIVISIONS):
        divisor = args[1] if len(args) > 1 and "pow" not in name else 0
        if isinstance(divisor, (int, float)) and divisor != 0:
            return False
        tensors = [value for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
        return not any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors)
    if name in _TELLING:
        return bool(kwargs.get("check_errors"))
    if name in _SAFE or name.startswith(_SAFE_FAMILIES) or "_backward" in name or func.is_view:
        return False
    return torch.Tag.pointwise not in func.tags and torch.Tag.reduction not in func.tags


def handler_around(frame: types.FrameType | None, outermost: types.FrameType | None) -> bool:
    """Tell whether the code of `frame` or of one that called it would handle an error.

    `outermost`, what called that and libraries do not count, and `with` blocks only in code that
    has the name `suppress`.
    """
    while frame is not None and frame is not outermost:
        code = frame.f_code
        if not is_library(code.co_filename) and is_handled(code, frame.f_lasti):
            return True
        frame = frame.f_back
    return False
