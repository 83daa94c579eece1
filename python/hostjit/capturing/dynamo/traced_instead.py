# SPDX-License-Identifier: Apache-2.0
"""Functions of torch.nn that look at elements of tensors, where the result does not depend on it.

Dynamo stops there. It is given others to trace, which compute the same.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import transformer
from torch.nn.modules.batchnorm import _BatchNorm

from hostjit.capturing.dynamo.padded_encoder import encoder_for
from hostjit.replacements import replaced_attribute

__all__ = ["is_traced_instead", "tracing_instead"]


def is_causal_mask(
    mask: Tensor | None, is_causal: bool | None = None, size: int | None = None
) -> bool:
    """Whether attention is to leave a mask out, and attend to what is before.

    Eager compares the mask to find out. A mask that is given says the same.
    """
    return is_causal is True


def batch_norm_of_all(self: _BatchNorm, input: Tensor) -> Tensor:  # noqa: A002
    """`forward` of a batch norm whose statistics are the average over all batches.

    The weight of this batch is a number that a tensor tells. So they are averaged here, in the
    precision in which eager does.
    """
    assert self.momentum is None and self.training and self.track_running_stats  # and stays so
    self._check_input_dim(input)
    tracked, mean, variance = self.num_batches_tracked, self.running_mean, self.running_var
    assert tracked is not None and mean is not None and variance is not None
    tracked.add_(1)
    found_mean, found_variance = torch.zeros_like(mean), torch.zeros_like(variance)
    result = torch.nn.functional.batch_norm(
        input, found_mean, found_variance, self.weight, self.bias, True, 1.0, self.eps
    )
    weight = 1.0 / tracked.to(torch.float64)
    for average, found in ((mean, found_mean), (variance, found_variance)):
        average.data.copy_(found.double() * weight + average.double() * (1.0 - weight))
    return result


@contextlib.contextmanager
def tracing_instead() -> Iterator[None]:
    """Have Dynamo trace these, in this thread, for the time of one capture."""
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.functions import UserFunctionVariable

    owner = threading.get_ident()
    original = UserFunctionVariable.call_function

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        choose = _OTHERS.get(self.fn) if threading.get_ident() == owner else None
        given = [*self.self_args(), *args] if choose else []
        other = choose(given, kwargs) if choose else None
        if other is None:
            return original(self, tx, args, kwargs)
        return tx.inline_user_function_return(VariableTracker.build(tx, other), given, kwargs)

    with replaced_attribute(UserFunctionVariable, "call_function", call):
        yield


def is_traced_instead(code: types.CodeType) -> bool:
    """Whether `code` is that of a function that another may be traced for."""
    return any(code is function.__code__ for function in _OTHERS)


def _for_mask(args: list[Any], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """Eager gives a mask that it leaves out no gradient."""
    mask = args[0] if args else kwargs.get("mask")
    return None if getattr(mask, "requires_grad", False) else is_causal_mask


def _for_batch_norm(args: list[Any], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    module = getattr(args[0], "value", None)
    if not isinstance(module, _BatchNorm) or module.num_batches_tracked is None:
        return None
    is_average = module.momentum is None and module.training and module.track_running_stats
    return batch_norm_of_all if is_average else None


_OTHERS: dict[Any, Callable[..., Callable[..., Any] | None]] = {
    transformer._detect_is_causal_mask: _for_mask,
    _BatchNorm.forward: _for_batch_norm,
    transformer.TransformerEncoder.forward: encoder_for,
}
