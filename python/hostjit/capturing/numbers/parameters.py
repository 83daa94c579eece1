# SPDX-License-Identifier: Apache-2.0
"""Functions of PyTorch with a parameter that is a number, computed with one that is open.

For most of them it is one of C++, so that whoever traces them has to know it. Here they are
made of operators that take numbers. Dynamo follows this code in the place of theirs, where the
parameter is open; it returns what they return, to rounding.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.variables.functions import UserFunctionVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.nn import functional

from hostjit.capturing.numbers import operands as number_operands
from hostjit.capturing.numbers import ranges as number_ranges
from hostjit.capturing.numbers.draws import DRAWING_FUNCTIONS, DRAWING_METHODS
from hostjit.capturing.numbers.dropout import DROPOUTS
from hostjit.capturing.numbers.inverse_stft import has_halves_of_spectra, istft
from hostjit.capturing.numbers.losses import LOSSES
from hostjit.capturing.numbers.norms import NORMS
from hostjit.capturing.numbers.parameter_function import NumberFunction, is_exact
from hostjit.capturing.numbers.tables import TABLES
from hostjit.replacements import replaced_attribute

__all__ = ["parameters_stay_open"]


@contextlib.contextmanager
def parameters_stay_open() -> Iterator[None]:
    """Have Dynamo follow these functions so, in this thread."""
    owner = threading.get_ident()
    original = TorchInGraphFunctionVariable.call_function
    call_method = TensorVariable.call_method

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        rules = _FUNCTIONS.get(self.value, ()) if threading.get_ident() == owner else ()
        found = next((rule for rule in rules if _is_for(rule, args, kwargs)), None)
        if found is None:
            return original(self, tx, args, kwargs)
        function: Any = found.compute
        return tx.inline_user_function_return(UserFunctionVariable(function), args, kwargs)

    def call_method_of_tensor(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        rule = DRAWING_METHODS.get(name) if threading.get_ident() == owner else None
        if (
            rule is None
            or self.python_type() is not Tensor
            or not _is_for(rule, [self, *args], kwargs)
        ):
            return call_method(self, tx, name, args, kwargs)
        function: Any = rule.compute
        return tx.inline_user_function_return(UserFunctionVariable(function), [self, *args], kwargs)

    with (
        replaced_attribute(TorchInGraphFunctionVariable, "call_function", call),
        replaced_attribute(TensorVariable, "call_method", call_method_of_tensor),
    ):
        yield


def _is_for(found: NumberFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
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


def _tensor(
    data: float,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    return torch.full((), data, dtype=dtype, device=device)


def _array(
    obj: float,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    return torch.full((), obj, dtype=dtype, device=device)


def _is_constant(given: Mapping[str, Any]) -> bool:
    return given["requires_grad"] is False


def _is_away_from_zero(given: Mapping[str, Any]) -> bool:
    return not given["inplace"] and is_exact("input")(given) and bool(given["alpha"] > 0.0)


def _always(_: Mapping[str, Any]) -> bool:
    return True


_NUMBERS = (int, float)
_Rules = tuple[NumberFunction, ...]
_OTHERS: dict[Callable[..., Any], NumberFunction] = {
    functional.adaptive_avg_pool1d: NumberFunction(
        ("output_size",), number_operands.adaptive_avg_pool1d, number_operands.pools, (int,)
    ),
    functional.celu: NumberFunction(("alpha",), number_operands.celu, _is_away_from_zero),
    functional.cosine_similarity: NumberFunction(
        ("eps",), number_operands.cosine_similarity, number_operands.has_cosine
    ),
    # As it is: Dynamo would take it for one operator.
    functional.multi_head_attention_forward: NumberFunction(
        ("dropout_p",), functional.multi_head_attention_forward, _always
    ),
    functional.normalize: NumberFunction(("p", "eps"), functional.normalize, _always),
    functional.rrelu: NumberFunction(
        ("lower", "upper"), number_operands.rrelu, number_operands.is_leaky
    ),
    torch._C._nn.pad: NumberFunction(
        ("value",), number_operands.pad, number_operands.pads_with_number, _NUMBERS
    ),
    functional.scaled_dot_product_attention: NumberFunction(
        ("scale", "dropout_p"), number_operands.attention, number_operands.scales_or_drops
    ),
    torch.arange: NumberFunction(
        ("start", "end", "step"), number_ranges.arange, number_ranges.is_range
    ),
    torch.as_tensor: NumberFunction(("data",), _tensor, _is_constant, _NUMBERS),
    torch.asarray: NumberFunction(("obj",), _array, _is_constant, _NUMBERS),
    torch.cdist: NumberFunction(("p",), number_operands.cdist, number_operands.has_distances),
    torch.float_power: NumberFunction(
        ("exponent",), number_operands.float_power, is_exact("input")
    ),
    torch.istft: NumberFunction(("length",), istft, has_halves_of_spectra, (int,)),
    torch.isclose: NumberFunction(
        ("rtol", "atol"), number_operands.isclose, number_operands.compares
    ),
    torch.linspace: NumberFunction(
        ("start", "end", "steps"), number_ranges.linspace, number_ranges.is_linear, _NUMBERS
    ),
    torch.logit: NumberFunction(("eps",), number_operands.logit, number_operands.clamps),
    torch.special.logit: NumberFunction(("eps",), number_operands.logit, number_operands.clamps),
    torch.nan_to_num: NumberFunction(
        ("nan", "posinf", "neginf"), number_operands.nan_to_num, number_operands.replaces_floats
    ),
    torch.quantile: NumberFunction(("q",), number_operands.quantile, number_operands.has_quantile),
    torch.tensor: NumberFunction(("data",), _tensor, _is_constant, _NUMBERS),
}
_FUNCTIONS: dict[Callable[..., Any], _Rules] = {
    **DROPOUTS,
    **LOSSES,
    **NORMS,
    **{function: (rule,) for function, rule in {**_OTHERS, **TABLES, **DRAWING_FUNCTIONS}.items()},
}
