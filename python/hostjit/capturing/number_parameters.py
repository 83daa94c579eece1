# SPDX-License-Identifier: Apache-2.0
"""Functions of PyTorch with a parameter that is a number, computed with one that is open.

For most of them it is one of C++, so that whoever traces them has to know it. Here they are
made of operators that take numbers. Dynamo follows this code in the place of theirs, where the
parameter is open; it returns what they return, to rounding.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._dynamo.variables.functions import UserFunctionVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.nn import functional

from hostjit.capturing import number_operands
from hostjit.capturing.open_dropout import DROPOUT

__all__ = ["parameters_stay_open"]

_FLOATS = (torch.float32, torch.float64)


@dataclasses.dataclass(frozen=True)
class _Function:
    """How a function is computed.

    Attributes:
        parameters: the names of those that may be open.
        compute: has the parameters of the function.
        applies: tells of what it is called with, as far as that is known, whether it may be
            computed so. Tensors are fake ones.
        types: of the parameter.
    """

    parameters: tuple[str, ...]
    compute: Callable[..., Any]
    applies: Callable[[Mapping[str, Any]], bool]
    types: tuple[type, ...] = (float,)


@contextlib.contextmanager
def parameters_stay_open() -> Iterator[None]:
    """Have Dynamo follow these functions so, in this thread."""
    owner = threading.get_ident()
    original = TorchInGraphFunctionVariable.call_function

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        found = _FUNCTIONS.get(self.value) if threading.get_ident() == owner else None
        if found is None or not _is_for(found, args, kwargs):
            return original(self, tx, args, kwargs)
        function: Any = found.compute
        return tx.inline_user_function_return(UserFunctionVariable(function), args, kwargs)

    with mock.patch.object(TorchInGraphFunctionVariable, "call_function", call):
        yield


def _is_for(found: _Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    try:
        bound = inspect.signature(found.compute).bind(*args, **kwargs)
    except TypeError:
        return False
    given = {name: variable.realize() for name, variable in bound.arguments.items()}
    parameters = [given[name] for name in found.parameters if name in given]
    numbers = [number for number in parameters if isinstance(number, SymNodeVariable)]
    if not any(number.python_type() in found.types for number in numbers):
        return False
    defaults = {name: parameter.default for name, parameter in bound.signature.parameters.items()}
    return found.applies({**defaults, **{name: _known(v) for name, v in given.items()}})


def _known(variable: Any) -> Any:
    """What is known of a variable of Dynamo's; the variable itself for nothing."""
    if isinstance(variable, (TensorVariable, SymNodeVariable)):
        return variable.as_proxy().node.meta["example_value"]
    return variable.as_python_constant() if variable.is_python_constant() else variable


def _dropout(
    input: Tensor,  # noqa: A002
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    result: Tensor = DROPOUT(input, p)[0] if training else input
    return result


def _drops(given: Mapping[str, Any]) -> bool:
    if not given["training"]:
        return bool(0.0 <= given["p"] <= 1.0)
    return not given["inplace"] and 0.0 < given["p"] < 1.0


def _is_exact(name: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether this tensor is not of a half type, of which a product would be rounded once more."""
    return lambda given: isinstance(given[name], Tensor) and given[name].dtype in _FLOATS


def _cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    dim = 0 if input.dim() == 1 else 1
    classes = input.shape[dim]
    logits = functional.log_softmax(input, dim)
    loss = functional.nll_loss(
        logits, target, weight, ignore_index=ignore_index, reduction=reduction
    )
    if weight is None:
        smooth = -logits.sum(dim)
    else:
        shape = [1] * input.dim()
        shape[dim] = classes
        smooth = -(logits * weight.view(shape)).sum(dim)
    ignored = target == ignore_index
    smooth = smooth.masked_fill(ignored, 0.0)
    if reduction == "mean" and weight is None:
        smooth = smooth.sum() / (~ignored).sum().to(smooth.dtype)
    elif reduction == "mean" and weight is not None:
        known = target.masked_fill(ignored, 0)
        total = weight.gather(0, known.flatten()).view(known.shape).masked_fill(ignored, 0.0).sum()
        smooth = smooth.sum() / total
    elif reduction == "sum":
        smooth = smooth.sum()
    return loss * (1 - label_smoothing) + smooth * (label_smoothing / classes)


def _smooths(given: Mapping[str, Any]) -> bool:
    target = given["target"]
    return (
        _reduces(given)
        and isinstance(target, Tensor)
        and not target.is_floating_point()
        and 0.0 < given["label_smoothing"] <= 1.0
    )


def _reduces(given: Mapping[str, Any]) -> bool:
    is_new = given.get("size_average") is None and given.get("reduce") is None
    return is_new and given["reduction"] in ("mean", "sum", "none")


def _huber_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    distance = (input - target).abs()
    loss = torch.where(
        distance <= delta, 0.5 * distance * distance, delta * (distance - 0.5 * delta)
    )
    return _reduced(loss, reduction)


def _smooth_l1_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    distance = (input - target).abs()
    loss = torch.where(distance < beta, 0.5 * distance * distance / beta, distance - 0.5 * beta)
    return _reduced(loss, reduction)


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def _is_distance(name: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a loss is of the distances of elements, from a positive number of this name on."""

    def applies(given: Mapping[str, Any]) -> bool:
        x, target = given["input"], given["target"]
        return (
            _reduces(given)
            and given.get("weight") is None
            and isinstance(x, Tensor)
            and isinstance(target, Tensor)
            and x.shape == target.shape
            and x.dtype == target.dtype
            and x.dtype in _FLOATS
            and given[name] > 0.0
        )

    return applies


def _layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    variance, mean = torch.var_mean(input, dims, correction=0, keepdim=True)
    result = (input - mean) * torch.rsqrt(variance + eps)
    if weight is not None:
        result = result * weight
    return result if bias is None else result + bias


def _rms_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    assert eps is not None
    dims = tuple(range(-len(normalized_shape), 0))
    result = input * torch.rsqrt(input.square().mean(dims, keepdim=True) + eps)
    return result if weight is None else result * weight


def _tensor(
    data: float,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    return torch.full((), data, dtype=dtype, device=device)


def _is_constant(given: Mapping[str, Any]) -> bool:
    return given["requires_grad"] is False


def _is_away_from_zero(given: Mapping[str, Any]) -> bool:
    return not given["inplace"] and _is_exact("input")(given) and bool(given["alpha"] > 0.0)


def _always(_: Mapping[str, Any]) -> bool:
    return True


_NUMBERS = (int, float)
_FUNCTIONS: dict[Callable[..., Any], _Function] = {
    functional.batch_norm: _Function(
        ("momentum",), number_operands.batch_norm, number_operands.batch_norm_applies
    ),
    functional.celu: _Function(("alpha",), number_operands.celu, _is_away_from_zero),
    functional.cross_entropy: _Function(("label_smoothing",), _cross_entropy, _smooths),
    functional.dropout: _Function(("p",), _dropout, _drops),
    functional.huber_loss: _Function(("delta",), _huber_loss, _is_distance("delta")),
    functional.layer_norm: _Function(("eps",), _layer_norm, _is_exact("input")),
    # As it is: Dynamo would take it for one operator.
    functional.multi_head_attention_forward: _Function(
        ("dropout_p",), functional.multi_head_attention_forward, _always
    ),
    functional.normalize: _Function(("p",), functional.normalize, _always),
    torch._C._nn.pad: _Function(
        ("value",), number_operands.pad, number_operands.pads_with_number, _NUMBERS
    ),
    functional.scaled_dot_product_attention: _Function(
        ("scale", "dropout_p"), number_operands.attention, number_operands.scales_or_drops
    ),
    functional.smooth_l1_loss: _Function(("beta",), _smooth_l1_loss, _is_distance("beta")),
    torch.arange: _Function(
        ("start", "end", "step"), number_operands.arange, number_operands.is_range
    ),
    torch.as_tensor: _Function(("data",), _tensor, _is_constant, _NUMBERS),
    torch.nan_to_num: _Function(
        ("nan", "posinf", "neginf"), number_operands.nan_to_num, number_operands.replaces_floats
    ),
    torch.rms_norm: _Function(("eps",), _rms_norm, _is_exact("input")),
    torch.tensor: _Function(("data",), _tensor, _is_constant, _NUMBERS),
}
