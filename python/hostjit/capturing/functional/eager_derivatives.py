# SPDX-License-Identifier: Apache-2.0
"""Operators that PyTorch's traces take apart where gradients are enabled, into something else.

Of a multilabel margin loss, the targets after the first -1 count in the traces; of one row, either
margin loss is a vector; and NaN has a gradient of zero through `softshrink`. So they stay one
operator, with eager's derivatives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn._reduction import get_enum

from hostjit.capturing.functional.fake_results import fake_results_by
from hostjit.capturing.python_kernels import python_kernels_changed

__all__ = ["eager_derivatives", "margin_losses_known"]

Tensor = torch.Tensor

aten = torch.ops.aten

_NONE, _MEAN = get_enum("none"), get_enum("mean")
_OPERATORS = (
    *(aten.multi_margin_loss.default, aten.multilabel_margin_loss_forward.default),
    *(aten.softshrink.default, aten.hardshrink.default),
)


@contextlib.contextmanager
def eager_derivatives() -> Iterator[None]:
    """Trace margin losses, and shrinkage, as one operator each, with eager's derivative."""
    kernels = {operator: {torch._C.DispatchKey.Autograd: None} for operator in _OPERATORS}
    with python_kernels_changed(kernels), margin_losses_known():
        yield


def margin_losses_known() -> contextlib.AbstractContextManager[None]:
    """Have fake tensors know that the loss of one row is a scalar, and the losses' gradients."""
    return fake_results_by(_RULES)


def _multi_margin_loss(
    mode: Any,
    _: Any,
    x: Tensor,
    target: Tensor,
    p: float = 1,
    margin: float = 1,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    with mode:
        return x.new_empty(target.shape if reduction == _NONE else ())


def _multilabel_margin_loss(
    mode: Any, _: Any, x: Tensor, target: Tensor, reduction: int
) -> tuple[Tensor, Tensor]:
    with mode:
        rows = target.shape[:-1] if reduction == _NONE else ()
        return x.new_empty(rows), x.new_empty(target.shape)


def _gradient(mode: Any, _: Any, gradient: Tensor, x: Tensor, *__: Any) -> Tensor:
    with mode:
        return x.new_empty(x.shape)


_RULES: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.multi_margin_loss.default: _multi_margin_loss,
    aten.multi_margin_loss_backward.default: _gradient,
    aten.multilabel_margin_loss_forward.default: _multilabel_margin_loss,
    aten.multilabel_margin_loss_backward.default: _gradient,
}
